"""Answers to the questions of the supervisor's interface, by subject, in the supervisor's process."""
