"""The words of made-up tweets, the frequent ones first.

The word of rank r is used about as often as 1 / (r + 3) says, which is how people use words. Most
are small words; from `traffic` on they are things one may ask about.
"""

from __future__ import annotations

__all__ = ["WORDS"]

_TEXT = """
the to a i and you of in is it for my on me that this just so be at we with are not have was
but all up out now what like from can when do if they get about one no time go day today there
back how more good will your she he his her our us new going know see an or by some who love
too really still need here night people why had been home make as work want think only off
then over got right never best last great way year happy thanks well much week first life
even next always tonight morning look after down come say into would could should where
again before take thing long every old world feel big show man girl city street around
traffic rain snow game coffee subway train bus taxi park bridge tunnel pizza music concert
team school friend family birthday weekend summer winter storm wind sun beach river lake
mountain road highway exit lane delay crash stalled closed open detour toll parking airport
flight ferry station platform line late early waiting running walking driving riding bike
bakery bagel breakfast lunch dinner burger taco noodle salad cake cheese chocolate tea beer
wine bar cafe kitchen market store shop sale price ticket movie theater museum gallery
library book news paper radio video photo picture phone battery signal network laptop code
data office meeting boss job money rent bill tax vote mayor state county town village
Manhattan Brooklyn Queens Bronx Harlem Albany Buffalo Rochester Syracuse Utica Ithaca Yonkers
baseball football hockey soccer basketball tennis gym run marathon goal score win loss season
coach player fans stadium arena parade fireworks festival holiday party wedding baby kids
mother father brother sister dog cat bird tree flower garden apple orange grape corn farm
cold warm hot humid cloudy clear foggy icy flood fire police ambulance hospital doctor
nurse dentist pharmacy class exam teacher student campus college professor homework lecture
sleep dream tired awake alarm shower dress shoes coat umbrella glasses watch camera guitar
piano drums singer band album song dance stage crowd voice laugh smile cry hug kiss heart
hope wish luck lucky sad angry scared bored excited proud sorry sure maybe almost
"""

WORDS: tuple[str, ...] = tuple(_TEXT.split())
