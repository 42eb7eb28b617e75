"""Word banks: names, things and known facts that the sentences are filled with."""

from tests.sample_data_parts.helpers import phrases, table, words

# People, places, time
FIRST_NAMES = words(
    "Amina Bruno Carla Dmitri Elif Farid Greta Hugo Ines Jonas Keiko Liam Mara Nikhil Olga Pavel "
    "Quinn Rosa Stefan Tara Umar Vera Wanda Ximena Yusuf Zofia Anders Bettina Chidi Dalia Emeka "
    "Flora Goran Helena Ivo Jasmin Kofi Lucia Mateo Noor"
)
LAST_NAMES = words(
    "Abara Bellweather Castellan Dravik Eklund Fontaine Grimaldi Hoshino Ibarra Jankowski Kessler "
    "Lindqvist Marchetti Nakata Okafor Petrov Quillon Rasmussen Santoro Tveit Ueda Varga Weller "
    "Xanthos Yilmaz Zeman Aldana Brandt Coker Duarte"
)
CITIES = words("Porto Gdansk Lyon Tampere Bergen Bologna Ghent Cork Graz Leipzig Split Tartu")
WEEKDAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
ORDINALS = words("first second third fourth fifth sixth")

# What is bought, grown, owned and drunk
GOODS = table("""
    notebook | notebooks; pencil case | pencil cases; jigsaw puzzle | jigsaw puzzles;
    paintbrush | paintbrushes; football sticker pack | football sticker packs;
    water bottle | water bottles; flower pot | flower pots; torch | torches
""")
CROPS = words("apples pears tomatoes pumpkins plums carrots onions lemons")
COLOURS = words("green red blue yellow white black orange purple")
DRINKS = words("tea coffee cocoa lemonade")
PETS = words("cat parrot tortoise rabbit")

# What a quiz asks for
CAPITALS = table("""
    Argentina | Buenos Aires; Australia | Canberra; Austria | Vienna; Brazil | Brasília;
    Bulgaria | Sofia; Cameroon | Yaoundé; Canada | Ottawa; Colombia | Bogotá;
    Costa Rica | San José; Croatia | Zagreb; Cuba | Havana; Denmark | Copenhagen; Egypt | Cairo;
    Estonia | Tallinn; Ethiopia | Addis Ababa; Finland | Helsinki; Ghana | Accra; Greece | Athens;
    Hungary | Budapest; Iceland | Reykjavík; Ireland | Dublin; Jamaica | Kingston; Japan | Tokyo;
    Kenya | Nairobi; Latvia | Riga; Lithuania | Vilnius; the Maldives | Malé; Moldova | Chișinău;
    Mongolia | Ulaanbaatar; Morocco | Rabat; Nepal | Kathmandu; New Zealand | Wellington;
    Norway | Oslo; Paraguay | Asunción; Peru | Lima; Poland | Warsaw; Portugal | Lisbon;
    Romania | Bucharest; Senegal | Dakar; Slovakia | Bratislava; Slovenia | Ljubljana;
    Thailand | Bangkok; Tunisia | Tunis; Turkey | Ankara; Uruguay | Montevideo; Vietnam | Hanoi;
    Zambia | Lusaka; Zimbabwe | Harare
""")
ELEMENTS = table("""
    Hydrogen | H; Helium | He; Lithium | Li; Beryllium | Be; Boron | B; Carbon | C; Nitrogen | N;
    Oxygen | O; Fluorine | F; Neon | Ne; Sodium | Na; Magnesium | Mg; Aluminium | Al; Silicon | Si;
    Phosphorus | P; Sulfur | S; Chlorine | Cl; Argon | Ar; Potassium | K; Calcium | Ca;
    Scandium | Sc; Titanium | Ti; Vanadium | V; Chromium | Cr; Manganese | Mn; Iron | Fe;
    Cobalt | Co; Nickel | Ni; Copper | Cu; Zinc | Zn
""")  # in order of atomic number, from 1
PLANETS = words("Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune")  # from the Sun outwards
LANGUAGES = words("German French Spanish Italian Swedish")
VOCABULARY = table("""
    water | Wasser | eau | agua | acqua | vatten; bread | Brot | pain | pan | pane | bröd;
    milk | Milch | lait | leche | latte | mjölk; house | Haus | maison | casa | casa | hus;
    tree | Baum | arbre | árbol | albero | träd;
    school | Schule | école | escuela | scuola | skola;
    night | Nacht | nuit | noche | notte | natt;
    church | Kirche | église | iglesia | chiesa | kyrka;
    bird | Vogel | oiseau | pájaro | uccello | fågel; snow | Schnee | neige | nieve | neve | snö;
    key | Schlüssel | clé | llave | chiave | nyckel;
    spoon | Löffel | cuillère | cuchara | cucchiaio | sked; island | Insel | île | isla | isola | ö
""")
EVENTS = table("""
    the Battle of Hastings | 1066; the sealing of Magna Carta | 1215;
    the Ottoman capture of Constantinople | 1453; the first Atlantic crossing of Columbus | 1492;
    the Great Fire of London | 1666; the publication of Newton's Principia | 1687;
    the American Declaration of Independence | 1776; the storming of the Bastille | 1789;
    the Battle of Waterloo | 1815; the publication of On the Origin of Species | 1859;
    the opening of the Suez Canal | 1869; the opening of the Eiffel Tower | 1889;
    the first powered flight of the Wright brothers | 1903; the sinking of the Titanic | 1912;
    the opening of the Panama Canal | 1914; the October Revolution in Russia | 1917;
    the discovery of penicillin | 1928; the end of the Second World War | 1945;
    the launch of Sputnik 1 | 1957; the first crewed Moon landing | 1969;
    the fall of the Berlin Wall | 1989
""")

# What the long documents are about
PROJECT_ADJECTIVES = words(
    "Amber Brisk Copper Distant Early Faithful Granite Hollow Indigo Jagged Kindled Lunar Mellow "
    "Northern Opal Patient Quiet Russet Silver Tidal Upland Velvet Wandering Young Zealous Ashen"
)
PROJECT_NOUNS = words(
    "Anchor Beacon Cedar Dolphin Ember Falcon Garnet Heron Iris Juniper Kestrel Lantern Meadow "
    "Nettle Orchard Pelican Quarry Raven Sparrow Thistle Umbra Viaduct Willow Yarrow"
)
VENDORS = words("Halvorsen Brightwell Cormorin Duskfield Elmgate Ferrant Glasswing Hartmoor")
CREWS = phrases("""
    the night shift; the workshop team; the two apprentices; the front desk; the electricians; the
    volunteers; the survey team; the gardeners; the archive group; the safety officers
""")
THINGS = phrases("""
    water gauge; ticket machine; loading ramp; weather mast; display case; spare generator; delivery
    lift; measuring table; signal lamp; heat exchanger; mobile stage; filing cabinet; air filter;
    camera rail
""")
ROOMS = phrases("""
    the lower hall; the pump room; room 12; the old canteen; the glass pavilion; the north
    stairwell; the small workshop; the reading room; the covered yard; the control room
""")
TROUBLES = phrases("""
    a leaking seal; a missing delivery note; damp in the east wall; a confused timetable; a blocked
    drain; two broken hinges; a lost key; a slow network connection; a flat battery; unusually heavy
    traffic
""")

# What the code to repair is about: item, items, owner, amount, file
SNIPPET_DOMAINS = table("""
    order | orders | customer | total | shop/orders.py;
    shift | shifts | worker | hours | rota/shifts.py;
    parcel | parcels | depot | weight | freight/parcels.py;
    ticket | tickets | team | minutes | helpdesk/tickets.py;
    reading | readings | sensor | value | telemetry/readings.py;
    loan | loans | branch | amount | library/loans.py;
    trip | trips | driver | distance | fleet/trips.py;
    invoice | invoices | supplier | net | ledger/invoices.py;
    sample | samples | patient | volume | lab/samples.py;
    booking | bookings | guest | price | hotel/bookings.py
""")
