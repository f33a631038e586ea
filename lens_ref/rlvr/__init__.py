"""The training system, a file per arrow: tasks → rollouts → rewards → methods → updates → metrics →
checkpoints. A policy is a transformers causal language model, from the bundled tiny one to 8 B."""
