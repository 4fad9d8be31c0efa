"""The command line: each command parses, calls one method of the library, prints.

    main.py      the command `tideline`, errors and exit codes
    parse.py     text to places, times and JSON values
    output.py    values to JSON lines and tables
    store.py     opening a folder and a channel for one command
    manage.py    channel create, channels, stats, check, drop, warm, demo
    verbs.py     publish, subscribe, find, subscriptions, cancel, resume, apply
    watch.py     a live query as a table that is drawn again
    session.py   many operations through one pipe
    batch.py     files of operations as Arrow tables
    serve.py     a server; token.py, its tokens; backup.py, copies
    warm.py      compiling the kernels, visibly
    pipeline.py  Spark's pipelines; progress.py, what the terminal shows of one
    demo.py      drivers over New York State; demo_spark.py, half of them by Spark

Single-threaded. One process owns a folder: two commands on one folder at the same time do not
work, the second gets `Unavailable`. Programs that want to share one run `tideline session`.
"""
