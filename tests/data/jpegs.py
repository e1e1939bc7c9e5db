"""JPEGs of every kind that a decoder meets."""

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from phalanx.data.base import Pixels
from phalanx.data.decode.jpeg import JpegDecoder, decoder_status, find_decoder

# What Pillow cannot write: colours at a quarter of the width, and at half the height. By OpenCV, of a pattern.
ODD_SAMPLING = {
    "4:1:1": base64.b85decode(
        r"|JeWF01!$>Nk#wx0RR9200961|JwjV01yid4h#wq4h;?x5fBp?C>j_R78o%jB^@X_Gd(;xGdMRuNL)@pL{~*OI8bd-S6^ahXlFi6"
        r"ad~iLcwA*?WB=O#Lje&I5*QU2FB%#zV?sDWV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`Klo"
        r"01*fPB>+nU0YLx)5di}c0sq7R8vp?S0s{d70000000000000C41pxyG0tWxY03#3p0s;X90s;d700000000010{{X95g{>Q5>XRD"
        r"A|rAC!~hrp0RaI40RR9100000000001O)~H1OLPTB@qAu0s;a70tWy9000000003300RUO5-}kYfg>_eVUeNX|Jncy0|5X65d#qb"
        r"KLGej2#QuBl!&6|7Oe1bxQZ$wiRvPV>LQr^N!Exrt8o;@>Tej^aU_r@xKoWe+QeGx6uL#Nb5U~3fNm*ji&}b$S~`nfKT<`)bSm6P"
        r"RVV?yt5L?J=`vf5Q=wqgdIZTN7o_LN5Y}6dTXAOd?>TyeYO5NmMyYdIdd5^Y8l^=F(Nywfg-5eIoa%w1C~SS(i374(%MC`l>0P9="
        r"S0l63=QiU?1W%a$gxaibqJ}QqNhCXWA`EX6oFqr4vcWWuO6Hd(W{((ddwxjA(v$+s^mrfGYS!()lPqj~nAD@GV4QxW`xA=E_WWzu"
        r"`+g#i#DV)P0s5%q%pBT-_#lz&+esvX^a=7zCAq6xlvUoo{{YF&P&k$-97_~bZ4;2wkB{X*Jgj^{KT}PRpq)#Y=ZY5k2sBV_EKsqu"
        r"vO>nwQ*#;eSxeG_q|}kgfVn|!Ns4_sS;t~!3a-)BO>`1T2;Ir)Qt=c2*#"
    ),
    "4:4:0": base64.b85decode(
        r"|JeWF01!$>Nk#wx0RR9200961|JwjV01yid4h#wq4h;?x5fBp?C>j_R78o%jB^@X_Gd(;xGdMRuNL)@pL{~*OI8bd-S6^ahXlFi6"
        r"ad~iLcwA*?WB=O#Lje&I5*QU2FB%#zV?sDWV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`F1uV`Klo"
        r"01*fPB>+nU0TKWL5di}c0sq7R8vp<T0|5a60000000000000C900IL62L}Jd03#3p0s;X90s;d700000000010{{X95g{>Q5>XRD"
        r"A|rAC!~hxr0RRI50RaF200000000000|5dA1qJ~B!~iJ~00RI40tEvD1poj500000009C61Q8Mw6d_SDGC>8Ap;K|e(eVG;01N{G"
        r"00I#M5dc2`_(}<NiKXEy>T62Pmsn2`93`npLg@+PE6d!JTrF#a@sY_XMMGAoP6+AuGNO8n7M`IwBc<FPi0U$0I)vnok8oOJ^%}1q"
        r"s7)2<clZLPH&L)vC;`2zQO2a{4WhN7OS=FV+i@5c<5cKaH6DR7oE6{~rox`im)#y-p)^RI{;-`1?h>lalUNmqd6RWg5}Hi)jA_Pb"
        r"rNYv<6^v=ZSxTLLNXOEY0?hPyAJ|-quS8QV;lb~H{CtFp(Nywfg-5d%*0*i^nPX$@&z_UZFy6oP<M00dMh7~eXo?#jcH&Ve>QU+8"
        r"d;wYYH}kjbi-%;hmKu$9(z`=bkJLAgSE3J-n*G%N;OfTeGCvXr?63#wqmvEGeuz5KW5@4l1B_j`o1EH%_#lz&+euDM_zCpOw-@36"
        r"07sgjaU}OPk<x*R2NF!Sk+KFTsM<-I(XtRuLry+Fl>qXw@dW)zDUMZFbPv=rUMwlY+jqC&fue(HBHB0*ki`odNix~8B@B?Uw39WP"
        r"B2klb8S+_6(t@Pak;#%W$2=+Qa5Wm7uPsLxWZLj`3a-*au%aixbyHmglRGr1p9lZh"
    ),
}


def native() -> JpegDecoder:
    decoder = find_decoder()
    if decoder is None:
        pytest.skip(f"a C compiler or libjpeg-turbo is not installed: {decoder_status()}")
    return decoder


def photograph(height: int, width: int, seed: int = 0) -> Pixels:
    """Large shapes and fine grain, so that every frequency of a JPEG is used."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 9 + 2, width // 9 + 2, 3), dtype=np.uint8)
    shapes = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
    return (shapes.astype(int) + rng.integers(-12, 13, shapes.shape)).clip(0, 255).astype(np.uint8)


def jpeg(pixels: Pixels, mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, "JPEG", **{"quality": 88, **options})
    return out.getvalue()


def oriented(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def as_ycck(cmyk: bytes) -> bytes:
    """The same file, which now says that its first three components are luminance and colour differences."""
    at = cmyk.index(b"Adobe") + 11
    return cmyk[:at] + b"\x02" + cmyk[at + 1 :]


def of_size(data: bytes, height: int, width: int) -> bytes:
    """The same file with another size in its header."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + data[at + 4 :]


def without_tables(data: bytes) -> bytes:
    """The same file without its quantization tables, which a decoder may still have from the file before."""
    while (at := data.find(b"\xff\xdb")) >= 0:
        data = data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]
    return data
