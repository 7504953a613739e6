"""Logging: a Logger that is handed to who needs it, and the writers that it writes to."""

from parllel.logging.csv_writer import CsvWriter
from parllel.logging.jsonl_writer import JsonlWriter
from parllel.logging.logger import Logger
from parllel.logging.replaced_file import replaced_file
from parllel.logging.tensorboard_writer import TensorBoardWriter
from parllel.logging.terminal_writer import TerminalWriter
from parllel.logging.text_writer import TextWriter
from parllel.logging.wandb_writer import WandbWriter
from parllel.logging.writer import Level, Number, Writer

__all__ = [
    "CsvWriter",
    "JsonlWriter",
    "Level",
    "Logger",
    "Number",
    "TensorBoardWriter",
    "TerminalWriter",
    "TextWriter",
    "WandbWriter",
    "Writer",
    "replaced_file",
]
