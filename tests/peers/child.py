# SPDX-License-Identifier: Apache-2.0
"""child.py - lines of a child process that answers orders"""
import threading


def next_line(process, word, seconds):
    """What follows @word in the next line that begins with it.

    Return: None: the child has ended, or did not answer in time and was killed.
    """
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        return next((line[len(word):] for line in process.stdout if line.startswith(word)), None)
    finally:
        timer.cancel()
