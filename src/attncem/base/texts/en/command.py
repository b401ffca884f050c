"""What the command says by itself: lines beside the tables, and the tables of `data` and `runs`."""

from __future__ import annotations

COMMAND: dict[str, str] = {
    "command.start.train": (
        "train {run}: {data} ({train} train, {validation} validation, {test} test)\n"
        "  {network}, cut {cut}; z {shape}, {bytes} bytes a query; {device}, threads {threads}\n"
        "  epochs {first} to {last}: {time}"
    ),
    "command.start.audit": (
        "audit {run} ({weights}): suite {suite}, rows to make: {rows} of {all}\n"
        "  threat model {threat}, own images: {own}; images attacked: {images} ({on})\n"
        "  {device}, threads {threads}, workers {workers}"
    ),
    "command.start.unknown": "how long is told after the first",
    "command.start.time": "about {time}",
    "command.left": "train {run}: {left}",
    "command.trained": "{path}: validation accuracy {accuracy:.1f} %. Next: attncem audit {path}",
    "command.no_onnx": (
        "{path}: your networks are not kept as ONNX ({said}); the command line cannot audit the run, Python can, with "
        "modules=(encoder, server)"
    ),
    "command.warning": "warning: {run}: {said}",
    "command.checked.failed": "fail: {run}: {said}",
    "command.checked.passed": "pass: {run}: {said}",
    "command.note": "note: {said}",
    "command.audit_folder": "rows, scores of every image and pictures: {folder}",
    "command.page": "page: {path}",
    "command.report": "report: {path}",
    "command.start.demo": ("demo: {names}\n  {data}; attacked by suite {suite}; processes {workers}; into {folder}"),
    "command.demo.next": "Open the report in a browser. What to type next:",
    "command.demo.explain": "  {command} explain {run} test:0\n      one image on its way through the defended model",
    "command.demo.audit": (
        "  {command} audit {run} --suite standard\n      stronger attacks; it says first how long they take"
    ),
    "command.demo.own": (
        "  {command} train --config own-pictures data.root=FOLDER\n"
        "      a model of your own pictures, a folder for each class in FOLDER"
    ),
    "command.demo.activate": "The shell finds it by its name, attncem, after: {activate}",
    "command.no_runs": "no runs in {folder} or its sub-folders",
    "command.no_verb": "{word}: there is no such verb{guess} Verbs: {verbs}",
    "command.empty": "{name} is given as an empty text: leave it out, or name something",
    "command.too_large": "{name}={value}: whole numbers have at most 64 bits",
    "command.no_file": "{file} cannot be read or written: {reason}",
    "command.memory": "out of memory ({said}); what helps: a smaller training.batch_size, data.image_size or network",
    "command.interrupted": "interrupted{go_on}",
    "command.go_on.train": "; go on later with: attncem train --resume {run}",
    "command.go_on.audit": "; finished rows are kept in {run}, and the same command goes on with the others",
    "command.goes_on.campaign": "; what was finished is kept, and the same command goes on with the rest",
    "command.goes_on.search": "; what was tried is kept, and the same command goes on with the rest",
    "progress.count": "{done} of {total:g}",
    "progress.colon": ":",
    "progress.left": "about {time} left",
    "command.data.columns": "data set|images|classes|train|test|state",
    "command.runs.title": "Runs in {folder}",
    "command.runs.columns": "run|status|surrogate|weight|epoch|acc.\n%|attack\nMSE|audits",
    "command.runs.validation": "{accuracy}*",
    "command.runs.unaudited": "*: on validation images; the test images are measured by attncem audit RUN",
    # how a run or a data set is
    "command.state.running": "running",
    "command.state.finished": "finished",
    "command.state.stopped": "stopped",
    "command.state.failed": "failed",
    "command.state.interrupted": "interrupted",
    "command.state.unknown": "unknown",
    "command.state.damaged": "damaged",
    "command.state.unreadable": "unreadable",
    "command.state.found": "found",
    "command.state.missing": "missing",
    "command.state.incomplete": "incomplete",
    "command.state.ok": "ok",
}
