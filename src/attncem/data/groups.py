"""Groups of the classes of built-in data sets: an attribute without a table. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import ConfigError
from attncem.config.loading.suggest import did_you_mean, nearest

Groups = Mapping[str, Sequence[str]]

_CIFAR10 = {
    "animal": ("bird", "cat", "deer", "dog", "frog", "horse"),
    "vehicle": ("airplane", "automobile", "ship", "truck"),
}
_FASHION = {
    "clothes": ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Shirt"),
    "shoes": ("Sandal", "Sneaker", "Ankle boot"),
    "bag": ("Bag",),
}
_CIFAR100 = """
aquatic_mammals: beaver dolphin otter seal whale
fish: aquarium_fish flatfish ray shark trout
flowers: orchid poppy rose sunflower tulip
food_containers: bottle bowl can cup plate
fruit_and_vegetables: apple mushroom orange pear sweet_pepper
household_electrical_devices: clock keyboard lamp telephone television
household_furniture: bed chair couch table wardrobe
insects: bee beetle butterfly caterpillar cockroach
large_carnivores: bear leopard lion tiger wolf
large_man-made_outdoor_things: bridge castle house road skyscraper
large_natural_outdoor_scenes: cloud forest mountain plain sea
large_omnivores_and_herbivores: camel cattle chimpanzee elephant kangaroo
medium_mammals: fox porcupine possum raccoon skunk
non-insect_invertebrates: crab lobster snail spider worm
people: baby boy girl man woman
reptiles: crocodile dinosaur lizard snake turtle
small_mammals: hamster mouse rabbit shrew squirrel
trees: maple_tree oak_tree palm_tree pine_tree willow_tree
vehicles_1: bicycle bus motorcycle pickup_truck train
vehicles_2: lawn_mower rocket streetcar tank tractor
"""

GROUPS: dict[str, Groups] = {
    "cifar10": _CIFAR10,
    "cifar100": {
        name: tuple(classes.split())
        for name, _, classes in (line.partition(": ") for line in _CIFAR100.split("\n") if line)
    },
    "fashion_mnist": _FASHION,
    "fashion_mnist_mini": _FASHION,
}
"""Groups of classes by data set: the superclasses of CIFAR-100 (Krizhevsky 2009); ours for the other sets."""


def group_of_each(groups: Groups, classes: Sequence[str]) -> NDArray[np.int64]:
    """The group number of each class, -1 for a class without a group; ConfigError for an unknown class."""
    found = np.full(len(classes), -1, dtype=np.int64)
    number = {name: label for label, name in enumerate(classes)}
    for group, (title, members) in enumerate(groups.items()):
        for name in members:
            if name not in number:
                raise ConfigError(f"groups.{title}: {name} is not a class{did_you_mean(nearest(name, classes))}")
            found[number[name]] = group
    return found
