"""`bench faults` on a GPU; `tests/tuner/devices/measured/test_device.py` injects the same faults on the host device."""

import json

import pytest

from tilewise.cli import main


@pytest.mark.needs_gpu
def test_faulty_configs_are_stored_with_their_own_reason_on_a_gpu(tmp_path, fresh_supervisors):
    file = tmp_path / "faults.json"
    with pytest.raises(SystemExit) as ended:
        main(["bench", "faults", "-o", str(file)])
    assert not ended.value.code
    body = json.loads(file.read_text())
    assert body["as_expected"] == body["configs"]["faulty"]
