"""Nothing secret of a command is kept or shown, and what is no secret stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import Target
from launchscope.recorded import place_in_repository, recorded, without_secrets

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "words",
    [
        "--hf-token SECRET", "--hf_token=SECRET", "--token SECRET", "--hfToken SECRET",
        "--HF_TOKEN=SECRET", "--auth-token SECRET", "--access_token=SECRET", "--authtoken SECRET",
        "--password SECRET", "--password 12345678", "--db-passwd=SECRET", "--pwd SECRET",
        "--passphrase SECRET", "--api-key SECRET", "--apikey=SECRET", "--wandb_api_key SECRET",
        "--secret SECRET", "--client-secret=SECRET", "--aws-secret-access-key SECRET",
        "--private_key SECRET", "--credentials SECRET", "--openai-key SECRET",
        "--cookie SECRET", "--creds SECRET", "--webhook-url https://hooks.example/T0/B1/x", "--webhook=https://hooks.example/T0/B1/x",
        "--password=with,many;odd&characters=", "--password=", "HF_TOKEN=SECRET",
        "WANDB_API_KEY=SECRET", "+logger.api_key=SECRET", "logger.wandb.api_key=SECRET",
        "auth.token=SECRET", "--env=API_KEY=SECRET", "--set password=SECRET",
        "https://me:SECRET@example.org/data.tar", "--data=s3://key:SECRET@host/b",
        "postgres://u:SECRET@db:5432/x?a=1", "https://SECRET@github.com/a/b",
        "https://example.org/?api_key=SECRET&x=1", '{"api_key":"SECRET","lr":1}',
        "{'password':'SECRET'}", "Authorization:Bearer-SECRET",
        "--auth Bearer SECRET", "--header Authorization: Bearer SECRET",
        "--authorization basic SECRET",
        "hf_AbCdEfGhIjKlMnOpQrStUvWx", "--name=hf_AbCdEfGhIjKlMnOpQrStUvWx",
        "ghp_0123456789abcdefghijABCDEFGHIJ", "sk-proj-0123456789abcdef", "AKIAIOSFODNN7EXAMPLE",
        f"--x {JWT}", "glpat-0123456789abcdefghij",
    ],
)  # fmt: skip
def test_a_secret_is_masked(words: str) -> None:
    masked = " ".join(without_secrets(words.split()))
    assert ("***" in masked) == (words != "--password=")
    secrets = ["SECRET", "12345678", "T0/B1", "many", "odd", "AbCdEf", "0123456789"]
    assert not any(secret in masked for secret in [*secrets, "AKIA", JWT[:20], JWT[-20:]])
    assert without_secrets(masked.split()) == tuple(masked.split())  # once is enough


@pytest.mark.parametrize(
    "words",
    [
        "--epochs 1 --lr 1e-3", "--tokenizer gpt2", "--tokens 64", "--max-tokens=128",
        "--tokens-per-batch 4096", "--num-tokens 5", "--token-dim 64", "--pad-token <pad>",
        "--eos_token=</s>", "--mask-token [MASK]", "--pad_token_id 0", "--key-dim 64",
        "--label-key label", "--image_key=jpg", "--key train", "--num-keys 8", "--monkey 3",
        "--password-file secrets.txt", "--token-path ~/.cache/token", "--use-auth-token --epochs 1",
        "--compass north", "--bypass 1", "--keyboard us", "data.batch_size=32", "model=resnet50",
        "https://example.org/data.tar", "s3://bucket/key", "git@github.com:me/x.git", "a:b",
        "sk-learn", "hf_dataset", "--author me", "--passes 3", "--secret-santa 3", "C:/data",
        '{"lr": 1, "key": "label"}', "--resume 0123456789abcdef0123456789abcdef01234567", "-", "=",
        "--auth none", "--mode basic data.csv", "--unit token 64", "-t 4 -k 5 -p 8 -s x",
        "--use_token=True", "--n-pass 3", "--pw 3",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(words: str) -> None:
    assert without_secrets(words.split()) == tuple(words.split())


def test_a_long_argument_takes_no_time() -> None:
    for text in ("a" * 50_000, "a=" * 20_000, "://" * 20_000, "@" * 50_000, "token" * 10_000):
        without_secrets([text, text])


def test_a_script_is_named_from_the_root_of_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, module = tmp_path / "repo" / "vae", tmp_path / "repo" / "sub"
    for folder in (inside, module, tmp_path / "repo" / ".git"):
        folder.mkdir(parents=True)
    (inside / "train.py").touch()
    (module / "x.py").touch()
    (module / ".git").write_text("gitdir: ../.git/modules/sub\n")
    (tmp_path / "link").symlink_to(inside)
    assert place_in_repository(inside / "train.py") == "vae/train.py"
    assert place_in_repository(tmp_path / "link" / "train.py") == "vae/train.py"
    assert place_in_repository(module / "x.py") == "sub/x.py"
    assert place_in_repository(tmp_path / "x.py") is None
    monkeypatch.chdir(inside)
    assert recorded(Target("script", "train.py")).path == "vae/train.py"
    assert recorded(Target("module", "train")).path == "vae"
