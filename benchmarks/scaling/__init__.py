"""How far do workers on Ray scale, by the size of an observation, and is the prediction right here?"""
