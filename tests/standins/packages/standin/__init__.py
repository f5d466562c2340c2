"""What the stand-ins of all engines share: a web server, a scheduler with a prefix cache, answers in OpenAI's shape.

They stand where the real engines cannot run, and speak as those do: same commands, flags, addresses, errors and
signals. What they generate is not language: an answer's first words tell which pod and which adapter made it. Only the
standard library is used, so that an engine starts within a tenth of a second.
"""
