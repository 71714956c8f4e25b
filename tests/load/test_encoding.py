"""Bytes to text: what is guessed is flagged, what is lost is counted."""

from __future__ import annotations

import pytest

from schemas.errors import PermanentError
from tasks.load.encoding import decode

CHINESE = (
    "码头值班通知：自三月一日起，所有仪表须在每日上午八点前完成校准。值班人员应检查潮位计、风速仪和水温传感器，"
    "并在登记簿上签字。如遇台风预警，请立即联系港务调度中心，停止一切户外作业。设备损坏须在二十四小时内上报。"
)
MIXED = (
    "安装说明：运行 pip install glossator，然后执行 glossator index。版本 2.3.1 起支持多种编码。错误代码 E-1042 表示"
    "配置缺失；E-2001 表示索引损坏，请删除 lake 目录后重新运行。如有问题请查阅用户手册第三章，或者联系技术支持部门。"
)
TRADITIONAL = (
    "碼頭值班通知：自三月一日起，所有儀表須在每日上午八點前完成校準。值班人員應檢查潮位計、風速儀和水溫感測器，"
    "並在登記簿上簽字。如遇颱風預警，請立即聯繫港務調度中心，並停止一切戶外作業。設備損壞須在二十四小時內上報。"
)
JAPANESE = (
    "埠頭当番のお知らせ：三月一日から、すべての計器は毎日午前八時までに校正を完了しなければなりません。当番者は"
    "潮位計、風速計、水温センサーを点検し、台帳に署名してください。台風の場合は、直ちに連絡してください。"
)
FRENCH = (
    "Avis de service : dès le premier mars, tous les appareils doivent être étalonnés chaque matin avant huit heures."
)


def test_utf8_needs_no_guess() -> None:
    decoded = decode(CHINESE.encode(), "a.txt")
    assert (decoded.text, decoded.flags) == (CHINESE, ())


def test_utf8_mark_is_not_part_of_the_text() -> None:
    assert decode(b"\xef\xbb\xbfone", "a.txt").text == "one"


@pytest.mark.parametrize("text", [CHINESE, MIXED, CHINESE[:40] + "\n" + MIXED[:80]])
def test_short_chinese_in_gb18030_is_read_and_flagged(text: str) -> None:
    """localGPT#457: a GBK file stops the run."""
    decoded = decode(text.encode("gb18030"), "a.txt")
    assert (decoded.text, decoded.flags) == (text, ("decoded:gb18030",))


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("big5", TRADITIONAL), ("shift_jis", JAPANESE), ("euc_jp", JAPANESE), ("cp1252", FRENCH)],
)
def test_other_encodings_are_detected_and_flagged(encoding: str, text: str) -> None:
    decoded = decode(text.encode(encoding), "a.txt")
    assert decoded.text == text
    assert len(decoded.flags) == 1 and decoded.flags[0].startswith("decoded:")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [FRENCH, "潮位计 12\n风速仪 7\n" * 8])
def test_utf16_without_mark_is_recognised(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding), "a.txt").text == text


def test_utf16_with_mark_is_read() -> None:
    assert decode(FRENCH.encode("utf-16"), "a.txt").text == FRENCH


def test_a_damaged_byte_leaves_a_mark_and_a_count() -> None:
    """langchain PR8320: errors='ignore' silently drops text."""
    data = bytearray((CHINESE * 10).encode())
    data[600] = 0xFF
    decoded = decode(bytes(data), "a.txt")
    assert "\ufffd" in decoded.text
    assert decoded.text.startswith(CHINESE)
    assert decoded.text.endswith(CHINESE)
    (flag,) = decoded.flags
    assert flag.startswith("undecodable:") and 1 <= int(flag.split(":")[1]) <= 3


def test_a_file_that_mostly_cannot_be_decoded_is_refused() -> None:
    data = b"\xff\xfe" + bytes([0x00, 0xD8]) * 500  # UTF-16 of nothing but lone surrogates
    with pytest.raises(PermanentError, match="cannot be decoded"):
        decode(data, "a.txt")


def test_the_declared_encoding_is_believed_when_utf8_does_not_fit() -> None:
    text = "Größe: 5 µm"
    decoded = decode(text.encode("iso-8859-1"), "a.html", declared="ISO-8859-1")
    assert (decoded.text, decoded.flags) == (text, ("decoded:cp1252",))


def test_gb2312_is_read_as_its_superset() -> None:
    text = "朱镕基先生"  # the second character is not in GB 2312
    assert decode(text.encode("gb18030"), "a.html", declared="gb2312").text == text


def test_an_unknown_declaration_is_ignored() -> None:
    assert decode(FRENCH.encode("cp1252"), "a.html", declared="x-no-such").text == FRENCH
