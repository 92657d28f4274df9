"""Self-checks for the notebooks: they say what a wrong answer IS, not only that it is wrong."""

from .desk import Report, Stopped, UnknownExercise, check, exercises, hint, progress, solution
from .exercise import Exercise
from .feedback import Feedback, Note

__all__ = [
    "Exercise",
    "Feedback",
    "Note",
    "Report",
    "Stopped",
    "UnknownExercise",
    "check",
    "exercises",
    "hint",
    "progress",
    "solution",
]
