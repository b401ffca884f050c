"""The table of data sets: shape, classes and normalisation constants. No torch."""

from __future__ import annotations

from attncem.base.types import DatasetSpec

FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
CIFAR100_CLASSES = tuple(_CIFAR100.split())

DATASETS: dict[str, DatasetSpec] = {
    "fashion_mnist_mini": DatasetSpec(
        "fashion_mnist_mini", (1, 28, 28), 10, mean=(0.2873,), std=(0.3544,), class_names=FASHION_CLASSES
    ),
    # measured on the 60,000 training images
    "fashion_mnist": DatasetSpec("fashion_mnist", (1, 28, 28), 10, (0.2860,), (0.3530,), FASHION_CLASSES),
    # the usual published values; measured on the 50,000 training images: std (0.2470, 0.2435, 0.2616)
    "cifar10": DatasetSpec(
        "cifar10", (3, 32, 32), 10, (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261), CIFAR10_CLASSES
    ),
    # published per-channel values; not measured again
    "cifar100": DatasetSpec(
        "cifar100", (3, 32, 32), 100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), CIFAR100_CLASSES
    ),
    # published per-channel values of all 200 classes; measured on 100 of them: within 0.002
    "tiny_imagenet_200": DatasetSpec(
        "tiny_imagenet_200", (3, 64, 64), 200, (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)
    ),
    # no trustworthy constants are published: measured on the images
    "facescrub": DatasetSpec("facescrub", (3, 48, 48), 530, (), ()),
    # measured on the 3,463 training images of the 158 people with at least 10 images
    "lfw_people": DatasetSpec("lfw_people", (3, 64, 64), 158, (0.5379, 0.4287, 0.3573), (0.2587, 0.2237, 0.2168)),
    "image_folder": DatasetSpec("image_folder", (0, 0, 0), 0, (), ()),
}
"""Data sets by name; readers.py has a reader of the same name. For sets of image folders `readers.dataset_spec` adds
the classes of the folder, and shape, mean and std if the row has zeros or nothing."""
