"""How much sooner is a sweep done if its runs share the cores than if they run one after the other?"""
