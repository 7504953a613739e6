"""`parllel sweep SCRIPT KEY=VALUES...`: runs of a script for all combinations of settings, several at a time.

command     check everything, lock the folder, run, report
settings    KEY=VALUES to the settings of each run
script      build function and config of a script
folder      the sweep's folder: sweep.json, lock, logs, run folders, results
scheduler   one process per run, `jobs` at a time: start, watch, stop   -->  one_run: train or resume
progress    steps and returns of a run in progress                      <--  progress.csv of the run
display     live table, or lines without a terminal
results     mean over seeds; table, picture and JSON
"""

__all__: list[str] = []
