"""What `import-cem` says: what of the baseline's training is not the same here."""

from __future__ import annotations

IMPORTING: dict[str, str] = {
    "import.note.validation": (
        "5 % of the training images are kept for validation; the baseline chooses its weights by test accuracy"
    ),
    "import.note.normalisation": (
        "{dataset}: images are normalised by the data set's own mean and deviation; the baseline's constants are "
        "those of single images"
    ),
    "import.note.no_sigmoid": (
        "without _sgm the baseline puts a batch normalisation behind the bottleneck; here z ends with the bottleneck"
    ),
    "import.note.cut": (
        "--cutlayer of {arch} counts other layers than model.cut: compare the multiply-accumulates of the client"
    ),
    "import.note.warm_up": (
        "the learning rate rises within the first epoch; the baseline trains its first epoch at rate 0"
    ),
    "import.note.selection": "the best of the last sixth of the epochs is kept, by validation accuracy",
    "import.note.local_lr": "--local_lr={value} is not taken over: client and server share the rate {rate}",
    "import.note.no_noise": "--lambd={weight} without noise cannot be trained by the baseline either: it is left out",
    "import.note.index_defect": (
        "each class has its own weights and variances; surrogate.index_defect=true gives the baseline's defect"
    ),
    "import.note.steps": (
        "{option}: the steps are taken as written; the baseline's reading of this text fails silently and takes 3"
    ),
    "import.note.adversarial": (
        "the adversarial decoder never sees test images; the baseline trains it on 9,000 of them first"
    ),
    "import.note.attacked_without": (
        "{stage} is part of the channel that is attacked; the baseline attacks features without it"
    ),
    "import.note.top_k": "the largest values of each sample are kept, not those of the whole batch",
    "import.note.pruning": "pruning closes channels by masks, judged on training images",
    "import.note.left_out": "--{flag} is not taken over",
    "import.note.unknown": "--{flag} is no flag of the baseline's training: it is not taken over",
    "import.attacks": (
        "attack commands are not needed: the row “baseline's decoder” of attncem audit RUN --suite standard is "
        "that attack"
    ),
    "import.written": "{file}",
    "import.next": "next: attncem train --config {file}",
    "import.run": "{path}: validation accuracy {accuracy:.1f} %. Next: attncem audit {path}",
}
