"""The command line `inferencecache`: one grammar over everything a person does with the system.

`up` starts the whole system on this machine and drives load through it (`stack`, `load`, `demo`);
`lookup` asks a router. Each command is a file in `commands` and is registered in `app`. Services are
only ever started as processes: nothing here imports one.
"""
