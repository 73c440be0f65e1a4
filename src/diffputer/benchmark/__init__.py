"""Tasks, data sets, scores and a runner: one flat row for every result, as the paper's protocol has it."""
