"""The paper's tables and figures from runs that happened: what `lens_ref.report` draws."""
