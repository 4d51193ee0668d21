"""What a person sees of a result; nothing here judges, and nothing here is needed to judge."""

from __future__ import annotations

from testbed.report.comparison import comparison
from testbed.report.difference import difference_report
from testbed.report.evidence import evidence_lines
from testbed.report.explanation import explanation_lines
from testbed.report.formats import FORMATS, RunPrinter, severity
from testbed.report.grid import matrix_junit, matrix_ktap, matrix_table, verdict_of
from testbed.report.ktap import ktap_head, ktap_lines
from testbed.report.mail import mail_lines
from testbed.report.terminal import console_for, run_report

__all__ = [
    "FORMATS",
    "RunPrinter",
    "comparison",
    "console_for",
    "difference_report",
    "evidence_lines",
    "explanation_lines",
    "ktap_head",
    "ktap_lines",
    "mail_lines",
    "matrix_junit",
    "matrix_ktap",
    "matrix_table",
    "run_report",
    "severity",
    "verdict_of",
]
