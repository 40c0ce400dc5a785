"""Model libraries: a few lines each that turn a library's model into `apply(params, *inputs)` and its parameters.

Each module has `to_function(model, ..., call=None) -> (apply, params)`, which `tuner.Task.from_<library>` calls, and says how a
prepared model goes back into its library. They have in common:

- `params` is a nested dict of arrays, in the library's own names: `{"blocks": {"0": {"attn": {"q": {"kernel": ...}}}}}`. Layers are
  named after these paths. `to_function(other_model)[1]` gives the same dict for another checkpoint of the model.
- What is no parameter (running averages, random keys, counters, codebooks) travels beside them under a key that begins with
  `~`, and no policy ever casts it: a product with it is listed with that reason. What a call changes in it is thrown away: a
  task is inference. Only Keras does not say which is which (see there).
- `call(model, *inputs) -> outputs` says how one batch goes through the model; by default `model(*inputs)`. `model` is the
  library's own callable (for Haiku and Keras a function of the inputs), bound to its parameters.
- A prepared model is a function of packed arrays, the same for every library: `jax.tree_util.Partial(prepared, prepared.params)`
  is a callable pytree that can be passed, jitted and stored like a model.

Plain functions and `jax.example_libraries.stax` need no adapter: `tuner.Task(apply=apply, params=params, ...)`.
"""
