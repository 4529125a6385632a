"""Checks of one object against the schema its project publishes; a field that the schema does not know is an error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

# kind -> file as the projects name their custom resource definitions.
CUSTOM_RESOURCES = {"RayJob": "ray.io_rayjobs.yaml", "JobSet": "jobset.x-k8s.io_jobsets.yaml"}


def strict(schema: Any) -> Any:
    """An OpenAPI v3 schema of a custom resource as a JSON schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    # A field may be called "properties" or "type" itself: only what stands where a schema stands is treated as one.
    result = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if "properties" in schema:
        result["properties"] = {name: strict(entry) for name, entry in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
            result["additionalProperties"] = False
    for key in ("items", "additionalProperties", "anyOf", "allOf", "oneOf", "not"):
        if key in schema:
            result[key] = strict(schema[key])
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
        result.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    if schema.get("nullable") and "type" in result:
        result["type"] = [result["type"], "null"]
    return result


def load_validators(folder: Path) -> dict[tuple[str, str], jsonschema.Draft202012Validator]:
    """(apiVersion, kind) -> validator, for every served version of the custom resources in `folder`."""
    validators = {}
    for kind, file_name in CUSTOM_RESOURCES.items():
        # The C loader where PyYAML has it: 1.4 MB of schema take 1 s with it and 10 s without.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        definition = yaml.load((folder / file_name).read_text(), Loader=loader)
        for version in definition["spec"]["versions"]:
            api_version = f"{definition['spec']['group']}/{version['name']}"
            schema = strict(version["schema"]["openAPIV3Schema"])
            validators[api_version, kind] = jsonschema.Draft202012Validator(schema)
    return validators


def find_mistakes(item: dict[str, Any], validators: dict[tuple[str, str], Any]) -> list[str]:
    """What is wrong with `item`, a line each; nothing where its schema accepts it."""
    if item["kind"] in CUSTOM_RESOURCES:
        validator = validators.get((item["apiVersion"], item["kind"]))
        if validator is None:
            return [f"{item['kind']}: the schema has no version {item['apiVersion']}"]
        return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(item)]
    try:
        kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{item['kind']}: {error.message[:200]}"]
    return []


def pod_specs(item: Any) -> Iterator[dict[str, Any]]:
    """Every pod specification inside `item`, in any depth."""
    if isinstance(item, dict):
        if "containers" in item:
            yield item
        for value in item.values():
            yield from pod_specs(value)
    elif isinstance(item, list):
        for entry in item:
            yield from pod_specs(entry)
