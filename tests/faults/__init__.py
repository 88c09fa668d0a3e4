"""Faults of every program that gpudoctor runs and of the system under it, on real processes.

`make faults` runs the whole matrix and writes docs/faults.md; a part of it is among the tests.

    table.py     the faults, and what each of them may come to
    stage.py     a folder of played tools: well, or one of them sick
    player.py    the sick tool itself
    run.py       one run of gpudoctor: how it ended, after how long, and who was left behind
    cells.py     faults x programs x commands
    system.py    faults that are not a program's: descriptors, signals, memory, missing folders
    ras.py       faults of NCCL's RAS service
    judge.py     what is wrong with a run
    matrix.py    runs the cells side by side, prints the table
"""
