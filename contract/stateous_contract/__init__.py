"""What a supervisor and a control plane agree on: messages, codes, limits and the life of a task.

The ground floor: it imports the standard library and msgspec, and everything may import it.
"""
