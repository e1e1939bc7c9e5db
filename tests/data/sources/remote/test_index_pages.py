"""The pages that servers make of folders, as they make them."""

from phalanx.data.sources.remote.index_pages import links_of

BASE = "https://example.org/data/pets/"

# ruff: noqa: E501
NGINX = """<html>
<head><title>Index of /data/pets/</title></head>
<body>
<h1>Index of /data/pets/</h1><hr><pre><a href="../">../</a>
<a href="cat%20%26%20dog/">cat &amp; dog/</a>                                         02-Jan-2026 10:00                   -
<a href="very-long-name-of-a-picture-that-nginx-cuts-off.jpg">very-long-name-of-a-picture-that-nginx-cuts-o..&gt;</a> 02-Jan-2026 10:01               12345
</pre><hr></body>
</html>"""

APACHE = """<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">
<html><head><title>Index of /data/pets</title></head><body><h1>Index of /data/pets</h1>
<table><tr><th valign="top"><img src="/icons/blank.gif" alt="[ICO]"></th><th><a href="?C=N;O=D">Name</a></th>
<th><a href="?C=M;O=A">Last modified</a></th><th><a href="?C=S;O=A">Size</a></th></tr>
<tr><td><img src="/icons/back.gif" alt="[PARENTDIR]"></td><td><a href="/data/">Parent Directory</a></td></tr>
<tr><td><img src="/icons/image2.gif"></td><td><a href="1.jpg">1.jpg</a></td><td align="right">2026-01-02 10:01  </td><td>12K</td></tr>
<tr><td><img src="/icons/folder.gif"></td><td><a href="/data/pets/%E7%8C%AB/">猫/</a></td><td>2026-01-02 10:00</td></tr>
</table><address>Apache/2.4 Server at <a href="https://example.com/">example.com</a></address></body></html>"""

CADDY = """<a href="./ape/">ape</a><a href="./2.jpg?download=1">2.jpg</a><a href="../">up</a><a href="mailto:x@y.z">x</a>
<a href="https://example.org/data/pets/ape/deeper.jpg">deeper</a><a href="#top">top</a><a href="http://[bad">bad</a><a>none</a>"""


def test_nginx() -> None:
    folder, file = links_of(NGINX, BASE)
    assert (folder.name, folder.is_folder, folder.url) == ("cat & dog", True, f"{BASE}cat%20%26%20dog/")
    assert (file.name, file.is_folder) == ("very-long-name-of-a-picture-that-nginx-cuts-off.jpg", False)
    assert file.about.endswith("02-Jan-2026 10:01               12345")


def test_apache() -> None:
    file, folder = links_of(APACHE, BASE)
    assert (file.name, file.url, file.about) == ("1.jpg", f"{BASE}1.jpg", "1.jpg 2026-01-02 10:01 12K")
    assert (folder.name, folder.url) == ("猫", f"{BASE}%E7%8C%AB/")


def test_others() -> None:
    assert [(link.name, link.is_folder) for link in links_of(CADDY, BASE)] == [("ape", True), ("2.jpg", False)]
