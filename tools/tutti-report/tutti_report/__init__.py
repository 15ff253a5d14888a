"""The modules of tutti-report: results, traces and logs as one HTML page."""
