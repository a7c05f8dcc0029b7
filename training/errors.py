"""Every error of the training library.

TrainingError
|- ConfigError        a training configuration or manifest that is out of bounds (also a ValueError)
|- CorpusError        text that cannot be trained on, or that is not the one the configuration means (also a ValueError)
|- ModelNotSupported  a model that the shared state cannot carry: buffers, parameters that are not float32
|- StateError         bytes that are no shared state, or a state of another job
|  `- StateOverflow   a parameter left the range of its fixed-point form
|- InvalidPayload     bytes that are no usable update
|- EmptyRound         no usable update in the whole round
|- DivergedError      a loss or an update that is not finite, or absurdly large
`- PrivateStateError  a worker's saved file that is torn, of another worker or job, or ahead of the shared state
"""


class TrainingError(Exception):
    """Base of all errors that this library raises on purpose."""


class ConfigError(TrainingError, ValueError):
    """A training configuration that is out of bounds."""


class CorpusError(TrainingError, ValueError):
    """Text that cannot be trained on, or that is not the one the configuration means."""


class ModelNotSupported(TrainingError):
    """A model with state that is no float32 parameter, so that averaging would leave it behind."""


class StateError(TrainingError):
    """Bytes that are no shared state, or a state that belongs to another job."""


class StateOverflow(StateError):
    """A value left the range of its fixed-point form."""


class InvalidPayload(TrainingError):
    """Bytes that are no usable update for this job, base and round."""


class EmptyRound(TrainingError):
    """Not one usable update: there is nothing to aggregate, the model stays as it is."""


class DivergedError(TrainingError):
    """Training left the finite numbers, or the range that an update can carry."""


class PrivateStateError(TrainingError):
    """A worker's own saved state that does not fit this worker, job or shared state."""
