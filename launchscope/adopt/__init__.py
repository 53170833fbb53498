"""From the step's source to a patch that runs it under `graphed`. libcst is imported only here."""
