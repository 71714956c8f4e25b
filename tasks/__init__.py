"""What is done to the data. Read the folders in the order of the DAG: plan, load, chunk, contextualize, embed,
tokens, publish. ``lake`` is where they keep it. Only the ``task.py`` files know Prefect."""
