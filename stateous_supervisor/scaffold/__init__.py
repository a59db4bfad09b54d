"""What writes a supervisor's folder: `contract.py` from a workflow, stubs for states, `stateous.yaml`.

Text is made by pure functions; only `folder` reads and writes files. Nothing here imports a user's file.
"""
