"""Programs that run a harness's tasks, in processes of their own: without
chunkscope.
"""
