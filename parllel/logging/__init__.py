"""Logging: a Logger and the writers that it writes to; files of records; ledgers of what must add up."""

from parllel.logging.csv_writer import CsvWriter
from parllel.logging.jsonl_writer import JsonlWriter
from parllel.logging.ledger import Ledger, LedgerError
from parllel.logging.logger import Logger
from parllel.logging.record_file import RecordFile, read_records
from parllel.logging.tensorboard_writer import TensorBoardWriter
from parllel.logging.terminal_writer import TerminalWriter
from parllel.logging.text_writer import TextWriter
from parllel.logging.wandb_writer import WandbWriter
from parllel.logging.writer import Level, Number, Writer

__all__ = [
    "CsvWriter",
    "JsonlWriter",
    "Ledger",
    "LedgerError",
    "Level",
    "Logger",
    "Number",
    "RecordFile",
    "TensorBoardWriter",
    "TerminalWriter",
    "TextWriter",
    "WandbWriter",
    "Writer",
    "read_records",
]
