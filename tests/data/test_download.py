"""Public data is fetched whole or not at all, from a server on this machine that fails in every way."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import os
import resource
import socket
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from file_server import Shelf, serving

from loca.data.datasets import (
    LAYOUTS,
    PRESETS,
    PUBLIC_SETS,
    Checksum,
    DataSet,
    Licence,
    find_preset,
    find_set,
)
from loca.data.download import Patience, data_folder, fetch
from loca.data.readers import read_interactions, read_preset
from loca.errors import ConfigError, DataError

# Bytes that repeat nowhere, so that a wrongly glued file cannot be right by chance.
CONTENT = b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(20_000))
HALF = len(CONTENT) // 2
LICENCE = Licence("Those Who Rated", "research", "for research alone", "https://example.org/terms")
QUICK = Patience(timeout=5, tries=3, pause=0)


@pytest.fixture(autouse=True)
def _straight_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with serving(Shelf(CONTENT)) as one:
        yield one


def public(shelf: Shelf, **changes: object) -> DataSet:
    digest = hashlib.md5(shelf.content, usedforsecurity=False).hexdigest()
    one = DataSet(
        name="small",
        label="Small",
        files=("small/small.zip",),
        layouts=("movielens-1m",),
        about="a small set",
        file_name="small.zip",
        addresses=(shelf.address,),
        licence=LICENCE,
        checksum=Checksum("md5", digest, "publisher"),
    )
    return replace(one, **changes)  # type: ignore[arg-type]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "small").iterdir())


def test_a_whole_file_is_put_in_its_place(shelf: Shelf, tmp_path: Path) -> None:
    found = fetch(public(shelf), tmp_path / "new" / "folder", patience=QUICK)
    assert found.path == tmp_path / "new" / "folder" / "small" / "small.zip"
    assert found.path.read_bytes() == CONTENT
    assert found.is_new
    assert found.size == len(CONTENT)
    assert found.assurance == "MD5 as published"
    assert names_in(tmp_path / "new" / "folder") == ["small.zip"]


def test_the_licence_is_told_before_the_download(
    shelf: Shelf, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.codes = [404]
    with caplog.at_level(logging.INFO, logger="loca"), pytest.raises(DataError):
        fetch(public(shelf), tmp_path, patience=QUICK)
    assert [record.getMessage() for record in caplog.records] == [
        "small: a small set. By Those Who Rated.",
        "Terms: for research alone. See https://example.org/terms",
    ]


def test_a_sound_file_is_not_downloaded_again_unless_asked(
    shelf: Shelf, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fetch(public(shelf), tmp_path, patience=QUICK)
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="loca"):
        assert not fetch(public(shelf), tmp_path, patience=QUICK).is_new
    assert [record.getMessage() for record in caplog.records] == [
        f"small: already there and sound, not downloaded again ({tmp_path / 'small' / 'small.zip'})"
    ]
    assert len(shelf.ranges) == 1
    assert fetch(public(shelf), tmp_path, again=True, patience=QUICK).is_new
    assert shelf.ranges == [None, None]


@pytest.mark.parametrize("date_only", [False, True])
def test_a_cut_download_goes_on_where_it_stopped(
    shelf: Shelf, tmp_path: Path, date_only: bool
) -> None:
    if date_only:
        shelf.version, shelf.date = 'W/"weak"', "Sat, 01 Jan 2022 00:00:00 GMT"
    shelf.cuts = [1000, 2000, 3000, 4000, 5000]  # more cuts than tries, but each brings something
    assert fetch(public(shelf), tmp_path, patience=QUICK).path.read_bytes() == CONTENT
    begun = [1000, 3000, 6000, 10000, 15000]
    assert shelf.ranges == [None, *(f"bytes={count}-" for count in begun)]


def test_a_download_that_failed_is_gone_on_with_by_the_next_one(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.cuts = [HALF, 0, 0, 0]
    with pytest.raises(
        DataError, match=r"cut at 0\.3 MB of 0\.6 MB.*0\.3 MB are saved, run the same command later"
    ):
        fetch(public(shelf), tmp_path, patience=QUICK)
    assert names_in(tmp_path) == ["small.zip.part", "small.zip.part.json"]
    shelf.ranges.clear()
    fetch(public(shelf), tmp_path, patience=QUICK)
    assert shelf.ranges == [f"bytes={HALF}-"]
    assert names_in(tmp_path) == ["small.zip"]


def test_a_changed_file_is_begun_anew_and_never_glued(shelf: Shelf, tmp_path: Path) -> None:
    shelf.cuts = [HALF, 0, 0, 0]
    with pytest.raises(DataError):
        fetch(public(shelf), tmp_path, patience=QUICK)
    shelf.content, shelf.version = CONTENT[::-1], '"second"'
    unstated = public(shelf, checksum=None, file_name="small.zip")
    with pytest.raises(DataError, match="zip file"):
        fetch(unstated, tmp_path, patience=QUICK)  # these bytes are no zip
    assert fetch(public(shelf), tmp_path, patience=QUICK).path.read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize(
    "note", ["", "{", '{"address": 1}', '{"address": "ADDRESS", "version": "a\\nb"}', "[]"]
)
def test_bytes_of_unknown_origin_are_not_gone_on_with(
    shelf: Shelf, tmp_path: Path, note: str
) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "small.zip.part").write_bytes(b"foreign")
    (tmp_path / "small" / "small.zip.part.json").write_text(note.replace("ADDRESS", shelf.address))
    assert fetch(public(shelf), tmp_path, patience=QUICK).path.read_bytes() == CONTENT
    assert shelf.ranges == [None]


def test_a_server_without_a_version_sign_sends_all_anew(shelf: Shelf, tmp_path: Path) -> None:
    shelf.version, shelf.cuts = None, [HALF]
    assert fetch(public(shelf), tmp_path, patience=QUICK).path.read_bytes() == CONTENT
    assert shelf.ranges == [None, None]


def test_a_server_that_ignores_ranges_sends_all_anew(shelf: Shelf, tmp_path: Path) -> None:
    shelf.takes_ranges, shelf.cuts = False, [HALF]
    assert fetch(public(shelf), tmp_path, patience=QUICK).path.read_bytes() == CONTENT
    assert shelf.ranges == [None, f"bytes={HALF}-"]


def test_a_server_that_always_cuts_at_the_same_place_is_left_in_the_end(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.takes_ranges, shelf.cuts = False, [HALF] * 100
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch(public(shelf), tmp_path, patience=QUICK)
    assert len(shelf.ranges) == 1 + QUICK.tries


def test_a_server_that_sends_another_part_is_not_believed(shelf: Shelf, tmp_path: Path) -> None:
    shelf.cuts, shelf.part_shift = [HALF], 1
    assert fetch(public(shelf), tmp_path, patience=QUICK).path.read_bytes() == CONTENT
    assert shelf.ranges == [None, f"bytes={HALF}-", None]


def test_a_part_that_is_already_whole_is_taken(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "small.zip.part").write_bytes(CONTENT)
    note = {"address": shelf.address, "version": shelf.version}
    (tmp_path / "small" / "small.zip.part.json").write_text(json.dumps(note))
    assert fetch(public(shelf), tmp_path, patience=QUICK).path.read_bytes() == CONTENT
    assert shelf.ranges == [f"bytes={len(CONTENT)}-"]


def test_a_file_of_unsaid_length_is_taken_to_its_end(shelf: Shelf, tmp_path: Path) -> None:
    shelf.has_length = False
    assert fetch(public(shelf), tmp_path, patience=QUICK).path.read_bytes() == CONTENT


def test_a_busy_server_is_asked_again(shelf: Shelf, tmp_path: Path) -> None:
    shelf.codes = [503, 500]
    assert fetch(public(shelf), tmp_path, patience=QUICK).is_new
    assert len(shelf.ranges) == 3


@pytest.mark.parametrize(("code", "times"), [(404, 1), (403, 1), (500, QUICK.tries)])
def test_a_refusal_is_told_and_leaves_nothing(
    shelf: Shelf, tmp_path: Path, code: int, times: int
) -> None:
    shelf.codes = [code] * 10
    with pytest.raises(
        DataError, match=rf"^small: could not be downloaded \(http.*: the server answers {code} "
    ):
        fetch(public(shelf), tmp_path, patience=QUICK)
    assert len(shelf.ranges) == times
    assert list(tmp_path.iterdir()) == []


def test_the_next_address_is_asked_where_the_first_fails(shelf: Shelf, tmp_path: Path) -> None:
    with serving(Shelf(CONTENT, codes=[404])) as other:
        both = public(shelf, addresses=(other.address, shelf.address))
        assert fetch(both, tmp_path, patience=QUICK).path.read_bytes() == CONTENT


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_without_a_network_one_try_says_so_and_how_to_go_on(tmp_path: Path) -> None:
    away = Shelf(CONTENT, address=f"http://127.0.0.1:{closed_port()}/file.zip")
    with pytest.raises(
        DataError, match=r"no connection: Connection refused\); check the network"
    ) as caught:
        fetch(public(away), tmp_path, patience=replace(QUICK, pause=60))
    assert str(caught.value).endswith(f"put it at {tmp_path / 'small' / 'small.zip'}")


def test_an_unknown_host_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    away = Shelf(CONTENT, address="http://nowhere.invalid/file.zip")
    with pytest.raises(DataError, match="no connection: Name or service not known"):
        fetch(public(away), tmp_path, patience=QUICK)


def test_a_silent_server_is_left_after_the_timeout(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"http://127.0.0.1:{mute.getsockname()[1]}/file.zip"
        with pytest.raises(DataError, match="the server fell silent"):
            fetch(public(Shelf(CONTENT, address=address)), tmp_path, patience=Patience(0.05, 2, 0))


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/file.zip", "file:///etc/passwd"])
def test_only_the_web_is_followed(shelf: Shelf, tmp_path: Path, target: str) -> None:
    shelf.moved_to = target
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch(public(shelf), tmp_path, patience=QUICK)
    with pytest.raises(DataError, match="expected an address that begins with https"):
        fetch(public(shelf, addresses=(target,)), tmp_path, patience=QUICK)


def test_a_redirect_within_the_web_is_followed_with_its_range(shelf: Shelf, tmp_path: Path) -> None:
    shelf.cuts = [HALF]
    with serving(Shelf(b"", moved_to=shelf.address)) as old:
        assert (
            fetch(
                public(shelf, addresses=(old.address,)), tmp_path, patience=QUICK
            ).path.read_bytes()
            == CONTENT
        )
    assert shelf.ranges == [None, f"bytes={HALF}-"]


def test_a_web_page_is_not_taken_for_data(shelf: Shelf, tmp_path: Path) -> None:
    shelf.content_type = "text/html; charset=utf-8"
    with pytest.raises(DataError, match="a web page came instead of the file"):
        fetch(public(shelf, checksum=None), tmp_path, patience=QUICK)


def test_wrong_bytes_are_removed_and_both_sums_told(shelf: Shelf, tmp_path: Path) -> None:
    expected = public(shelf)
    fetch(expected, tmp_path, patience=QUICK)
    shelf.content = CONTENT[::-1]
    found = hashlib.md5(CONTENT[::-1], usedforsecurity=False).hexdigest()
    with pytest.raises(DataError, match="it was removed") as caught:
        fetch(expected, tmp_path, again=True, patience=QUICK)
    assert expected.checksum is not None
    assert f"MD5 {found}, expected {expected.checksum.digest}" in str(caught.value)
    # What was there before is as it was.
    assert names_in(tmp_path) == ["small.zip"]
    assert (tmp_path / "small" / "small.zip").read_bytes() == CONTENT


def test_a_damaged_file_is_told_and_replaced_only_when_asked(shelf: Shelf, tmp_path: Path) -> None:
    path = fetch(public(shelf), tmp_path, patience=QUICK).path
    path.write_bytes(b"damaged")
    with pytest.raises(DataError, match="damaged or another version, --again downloads it anew"):
        fetch(public(shelf), tmp_path, patience=QUICK)
    assert path.read_bytes() == b"damaged"
    fetch(public(shelf), tmp_path, again=True, patience=QUICK)
    assert path.read_bytes() == CONTENT


def test_without_a_stated_checksum_the_files_own_is_kept_beside_it(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.content = gzip.compress(b'{"reviewerID": "A"}\n')
    unstated = public(shelf, checksum=None, file_name="small.json.gz")
    found = fetch(unstated, tmp_path, patience=QUICK)
    assert found.assurance.startswith("not verified against a publisher")
    digest = hashlib.sha256(shelf.content).hexdigest()
    assert found.checksum == Checksum("sha256", digest, "download")
    assert (tmp_path / "small" / "small.json.gz.sha256").read_text() == f"{digest}  small.json.gz\n"
    assert not fetch(unstated, tmp_path, patience=QUICK).is_new
    found.path.write_bytes(gzip.compress(b"other"))
    with pytest.raises(DataError, match=r"its SHA-256 is .* damaged or another version"):
        fetch(unstated, tmp_path, patience=QUICK)
    assert fetch(unstated, tmp_path, again=True, patience=QUICK).checksum.digest == digest


def test_a_file_put_there_by_hand_is_taken_if_it_opens(shelf: Shelf, tmp_path: Path) -> None:
    unstated = public(shelf, checksum=None, file_name="small.json.gz")
    path = tmp_path / "small" / "small.json.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(CONTENT)[:-9])
    with pytest.raises(DataError, match="cut short or damaged"):
        fetch(unstated, tmp_path, patience=QUICK)
    path.write_bytes(gzip.compress(b"all of it"))
    assert not fetch(unstated, tmp_path, patience=QUICK).is_new
    assert names_in(tmp_path) == ["small.json.gz", "small.json.gz.sha256"]
    (tmp_path / "small" / "small.json.gz.sha256").write_text("no sum\n")
    with pytest.raises(DataError, match="expected a SHA-256 and a file name"):
        fetch(unstated, tmp_path, patience=QUICK)
    assert shelf.ranges == []


def packed(name: str, text: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, text)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("file_name", "content", "message"),
    [
        ("a.json.gz", gzip.compress(CONTENT)[:-100], "cut short or damaged"),
        ("a.json.gz", b"plain words", "not a gzip file, in spite of its name"),
        ("a.rating", b"", "the file is empty"),
        ("a.zip", packed("ratings.dat", CONTENT)[:-30], "the zip file is cut short or damaged"),
        (
            "a.zip",
            packed("ratings.dat", CONTENT).replace(CONTENT[:32], CONTENT[32:64]),
            "damaged at ratings.dat",
        ),
    ],
)
def test_a_damaged_download_is_seen_without_a_checksum(
    shelf: Shelf, tmp_path: Path, file_name: str, content: bytes, message: str
) -> None:
    shelf.content = content
    with pytest.raises(DataError, match=message):
        fetch(public(shelf, checksum=None, file_name=file_name), tmp_path, patience=QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_does_not_fit_the_disk_is_refused_at_once(shelf: Shelf, tmp_path: Path) -> None:
    shelf.announced = 10**17
    with pytest.raises(
        DataError, match=r"100,000,000,000\.0 MB are to come, and .* free; make room"
    ):
        fetch(public(shelf), tmp_path, patience=QUICK)


def test_a_disk_that_takes_no_more_is_told_and_what_arrived_is_kept(
    shelf: Shelf, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, hard))
    try:
        with pytest.raises(DataError, match=r"^small: .* cannot be used \(File too large\)"):
            fetch(public(shelf), tmp_path, patience=QUICK)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names_in(tmp_path) == ["small.zip.part", "small.zip.part.json"]
    assert fetch(public(shelf), tmp_path, patience=QUICK).path.read_bytes() == CONTENT


def test_a_folder_that_cannot_be_made_is_told(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        DataError, match=r"^small: .*file/small cannot be used \(Not a directory\).*--to"
    ):
        fetch(public(shelf), tmp_path / "file", patience=QUICK)


def test_two_downloads_of_one_file_do_not_mix(shelf: Shelf, tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "small").mkdir()
    other = os.open(tmp_path / "small", os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another program is fetching into it"):
            fetch(public(shelf), tmp_path, patience=QUICK)
    finally:
        os.close(other)
    assert fetch(public(shelf), tmp_path, patience=QUICK).is_new


def test_data_goes_where_it_is_told_to_go() -> None:
    everything = {"LOCA_DATA": "/data", "XDG_CACHE_HOME": "/cache"}
    assert data_folder(Path("here"), everything) == Path("here")
    assert data_folder(None, everything) == Path("/data")
    assert data_folder(None, {"LOCA_DATA": "", "XDG_CACHE_HOME": "/cache"}) == Path(
        "/cache/loca/data"
    )
    assert (
        data_folder(None, {"XDG_CACHE_HOME": "relative"})
        == Path.home() / ".cache" / "loca" / "data"
    )


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    assert find_set("ML-20M") is PUBLIC_SETS["ml-20m"]
    with pytest.raises(ConfigError, match="unknown data set 'ml-21m'; did you mean"):
        find_set("ml-21m")
    with pytest.raises(ConfigError, match="unknown data set 'x'; known are ml-100k, ml-1m, "):
        find_set("x")


def test_every_public_set_is_complete() -> None:
    assert list(PUBLIC_SETS) == [*(f"ml-{size}" for size in ("100k", "1m", "10m", "20m", "25m", "32m")),
                                 "amusic", "agames", "yelp"]  # fmt: skip
    for one in PUBLIC_SETS.values():
        assert one.layouts[0] in LAYOUTS
        assert all(address.startswith("https://") for address in one.addresses)
        assert one.addresses[0].endswith("/" + one.file_name)
        assert one.licence.address.startswith("https://")
        if one.checksum is not None:
            assert len(one.checksum.digest) == {"md5": 32, "sha256": 64}[one.checksum.algorithm]
    assert {one for one in PUBLIC_SETS if PUBLIC_SETS[one].checksum is None} == {"agames", "yelp"}
    treated = {
        find_preset(one.preset).label for one in PUBLIC_SETS.values() if one.preset is not None
    }
    assert treated == set(PRESETS)


def in_published_form(one: DataSet) -> bytes:
    """A small file in the form in which the set is published: two users with 10 and 9 items."""
    rows = [
        (user, item) for user, items in ((7, range(10, 20)), (8, range(11, 20))) for item in items
    ]
    if one.layouts[0] == "amazon-reviews":
        lines = [
            json.dumps(
                {
                    "overall": 4.0,
                    "reviewerID": f"A{user:09}",
                    "asin": f"B{item:09}",
                    "unixReviewTime": item,
                }
            )
            for user, item in rows
        ]
        return gzip.compress("\n".join(lines).encode())
    separator = LAYOUTS[one.layouts[0]].separators[-1]
    text = "".join(
        separator.join([str(user), str(item), "4", str(item)]) + "\n" for user, item in rows
    )
    if one.file_name.endswith(".rating"):
        return text.encode()
    table = LAYOUTS[one.layouts[0]].members[0]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(
            str(Path(table).with_name("tags.csv")), "userId,movieId,tag,timestamp\n1,2,dull,3\n"
        )
        archive.writestr(table, "userId,movieId,rating,timestamp\n" * table.endswith(".csv") + text)
    return stream.getvalue()


@pytest.mark.parametrize("name", PUBLIC_SETS)
def test_the_command_named_next_reads_the_published_form(
    shelf: Shelf, tmp_path: Path, name: str
) -> None:
    one = PUBLIC_SETS[name]
    shelf.content = in_published_form(one)
    path = fetch(
        replace(one, addresses=(shelf.address,), checksum=None), tmp_path, patience=QUICK
    ).path
    command = one.reading_command(path)
    read = read_interactions(path, layout=one.layouts[0])
    assert (read.n_users, read.n_items) == (2, 10)
    if one.preset is None:
        assert command == f"loca data describe {path} --layout {one.layouts[0]}"
    else:
        assert command == f"loca data describe {path} --preset {one.preset}"
        assert read_preset(one.preset, path).n_users == 1  # the paper keeps those with 10


def test_a_path_with_a_space_is_quoted_in_the_next_command() -> None:
    command = PUBLIC_SETS["ml-1m"].reading_command(Path("my data/ml-1m.zip"))
    assert command == "loca data describe 'my data/ml-1m.zip' --layout movielens-1m"


@pytest.mark.real_data
def test_the_authors_file_has_the_recorded_checksum(real_data: Path) -> None:
    found = fetch(PUBLIC_SETS["amusic"], real_data)
    assert not found.is_new
    assert found.size == PUBLIC_SETS["amusic"].size


TEXT = b"".join(b"%d\t%d\t5.0\t1355328000\n" % (user, user + 7) for user in range(5_000))


@pytest.fixture
def text_shelf() -> Iterator[Shelf]:
    with serving(Shelf(TEXT, has_length=False, content_type="text/plain")) as one:
        yield one


def test_a_text_of_unsaid_length_that_ends_within_a_line_is_refused(
    text_shelf: Shelf, tmp_path: Path
) -> None:
    text_shelf.cuts = [TEXT.index(b"\n", len(TEXT) // 2) - 3]
    yelp = replace(PUBLIC_SETS["yelp"], addresses=(text_shelf.address,))
    with pytest.raises(
        DataError, match=r"^yelp\.rating: the download ends within a line, .* try again$"
    ):
        fetch(yelp, tmp_path, patience=QUICK)
    assert list(tmp_path.iterdir()) == []
    assert fetch(yelp, tmp_path, patience=QUICK).path.read_bytes() == TEXT


def test_a_cut_text_does_not_replace_the_one_that_is_there(
    text_shelf: Shelf, tmp_path: Path
) -> None:
    yelp = replace(PUBLIC_SETS["yelp"], addresses=(text_shelf.address,))
    path = fetch(yelp, tmp_path, patience=QUICK).path
    text_shelf.cuts = [len(TEXT) - 1]
    with pytest.raises(DataError, match="ends within a line"):
        fetch(yelp, tmp_path, again=True, patience=QUICK)
    assert path.read_bytes() == TEXT
    assert not fetch(yelp, tmp_path, patience=QUICK).is_new
