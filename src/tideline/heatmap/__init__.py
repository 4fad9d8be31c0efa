"""Where events are: counts on a grid, and a picture of them. Needs no Spark.

counts.py    events of one process -> count a cell; spark/aggregation.py does it at any size
picture.py   counts -> a map in colours
"""
