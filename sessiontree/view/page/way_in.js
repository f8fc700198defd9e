/** Opens the address of this page again, without the token: a link of another site comes without the cookie. */

const asked = new URLSearchParams(location.search);
asked.delete("token");
const words = asked.size ? `?${asked}` : "";
location.replace(location.pathname + words + location.hash);
