"""The command line `inferencecache`: one grammar over everything a person does with the system.

`up` starts the whole system on this machine and drives load through it (`stack`, `load`); `lookup` asks a
router; `tail` and `top` show what goes on, `replay` what was, and `doctor` what is wrong. Each command is a
file in `commands` and is registered in `app`; what commands share are groups of options (`options`) and a
connection (`connected`). Services are only ever started as processes: nothing here imports one.
"""
