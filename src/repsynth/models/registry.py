"""All models by name."""

from repsynth.knobs import Registry
from repsynth.models.base import Model
from repsynth.models.marginal.model import Aim, Mst
from repsynth.models.naive_bayes import NaiveBayes
from repsynth.models.network import Autoregressive

MODELS: Registry[Model] = Registry("model", [NaiveBayes, Mst, Aim, Autoregressive])
