"""The only rooms that know Optuna: what to try next, one candidate's way, and the loop around it."""

from tuner.search.runner import search as search
