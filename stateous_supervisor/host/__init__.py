"""The routine host: the child process that imports a folder and runs its routines.

User code lives here and nowhere else. Everything that must go on whatever a routine does is the agent's; the two
speak over a socket pair. `serve` puts the parts together, `__main__` starts it as a process, `inline` as a thread.
"""
