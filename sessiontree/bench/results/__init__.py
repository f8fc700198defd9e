"""What a run left: its records, tables, figures, comparisons and pages."""
