"""Renders the folders under k8s/ the way kustomize does, for the few features that they use; anything else is refused.

    kustomization.yaml -> resources -> generated ConfigMaps -> patches -> namespace -> images -> what kubectl applies

So the manifests are checked on machines without kubectl too; where kubectl is there, a test holds this against it.
"""

import copy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

CLUSTER_SCOPED = {"Namespace"}
KNOWN_KEYS = {
    "apiVersion",
    "kind",
    "namespace",
    "resources",
    "images",
    "configMapGenerator",
    "generatorOptions",
    "patches",
}


class RenderingError(ValueError):
    """A kustomization uses what this renderer does not know, or a patch does not fit."""


def render(folder: Path) -> list[Object]:
    """Objects of the kustomization in `folder`."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := set(kustomization) - KNOWN_KEYS:
        raise RenderingError(f"{folder}: kustomization keys {sorted(unknown)} are not rendered here; add them")
    objects: list[Object] = []
    for resource in kustomization["resources"]:
        path = folder / resource
        objects += render(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    for generator in kustomization.get("configMapGenerator", []):
        generate_config_map(objects, generator, folder)
    for patch in kustomization.get("patches", []):
        target = find(objects, patch["target"]["kind"], patch["target"]["name"])
        apply_json_patch(target, yaml.safe_load(patch["patch"]))
    for item in objects:
        if "namespace" in kustomization:
            set_namespace(item, kustomization["namespace"])
        for image in kustomization.get("images", []):
            set_image(item, image)
    return objects


def find(objects: list[Object], kind: str, name: str) -> Object:
    for item in objects:
        if item["kind"] == kind and item["metadata"]["name"] == name:
            return item
    raise RenderingError(f"there is no {kind} {name}")


def generate_config_map(objects: list[Object], generator: Object, folder: Path) -> None:
    data = {name: (folder / name).read_text() for name in generator.get("files", [])}
    data |= dict(literal.split("=", 1) for literal in generator.get("literals", []))
    behavior = generator.get("behavior", "create")
    if behavior == "create":
        metadata = {"name": generator["name"]}
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        return
    existing = find(objects, "ConfigMap", generator["name"])
    existing["data"] = data if behavior == "replace" else existing["data"] | data


def apply_json_patch(target: Object, operations: list[Object]) -> None:
    """RFC 6902's `test`, `replace` and `add` of a mapping's key."""
    for operation in operations:
        *parents, last = operation["path"].lstrip("/").split("/")
        place: Any = target
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        key: Any = int(last) if isinstance(place, list) else last
        if operation["op"] == "test":
            if place[key] != operation["value"]:
                raise RenderingError(f"{operation['path']} is {place[key]!r}, expected {operation['value']!r}")
        elif operation["op"] == "add" or (operation["op"] == "replace" and (isinstance(place, list) or key in place)):
            place[key] = copy.deepcopy(operation["value"])
        else:
            raise RenderingError(f"{operation['op']} of {operation['path']}: not there, or not an operation known here")


def set_namespace(item: Object, namespace: str) -> None:
    if item["kind"] == "Namespace":
        item["metadata"]["name"] = namespace
    elif item["kind"] not in CLUSTER_SCOPED:
        item["metadata"]["namespace"] = namespace


def set_image(item: Any, image: Object) -> None:
    """Every `image:` in any depth whose name is `image["name"]`, as kustomize does, custom resources included."""
    if isinstance(item, list):
        for entry in item:
            set_image(entry, image)
    elif isinstance(item, dict):
        for key, value in item.items():
            if key == "image" and isinstance(value, str) and value.rpartition(":")[0] == image["name"]:
                item[key] = f"{image['newName']}:{image['newTag']}"
            else:
                set_image(value, image)
