"""What routines are written with. `stateous_supervisor` gives its names to user code.

Nothing here knows the host or the link: what a context asks for goes through its `Port`. Pydantic is imported only
when a payload or context model is used, because a folder without models should not pay for it.
"""
