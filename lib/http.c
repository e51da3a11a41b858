// SPDX-License-Identifier: Apache-2.0
/*
 * http.c - parse requests and write answers of HTTP/1.1
 *
 * The parser is strict where attackers have used leniency: a proxy in front and this
 * server must agree on the end of a request.  So an ambiguous request is refused
 * with 400, and the connection ends.  The parser gets the head as one piece of
 * bounded length, so it never has to resume.  The length of a body is known, or
 * http_chunks_push() decodes its chunks; it can be interrupted at any byte.
 *
 * Only headers that this server acts on are read.
 */
#include <strings.h>

#include <kvmm/http.h>

#define CHUNK_LINE_MAX	1024u	/* a chunk's size with its extensions */
#define CHUNK_TRAILERS	8192u	/* of headers after the last chunk */

static bool is_token(char c)
{
	static const char others[] = "!#$%&'*+-.^_`|~";

	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	       (c >= 'A' && c <= 'Z') || (c && strchr(others, c));
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* A piece of the head. */
struct span {
	const char	*p;
	size_t		n;
};

static bool span_is(struct span s, const char *word)
{
	return s.n == strlen(word) && !strncasecmp(s.p, word, s.n);
}

static struct span span_trim(struct span s)
{
	while (s.n && is_blank(s.p[0])) {
		s.p++;
		s.n--;
	}
	while (s.n && is_blank(s.p[s.n - 1]))
		s.n--;
	return s;
}

/* Take the next element of a comma-separated list; false at its end. */
static bool list_next(struct span *list, struct span *word)
{
	const char *comma;

	if (!list->n)
		return false;
	comma = memchr(list->p, ',', list->n);
	word->p = list->p;
	word->n = comma ? (size_t)(comma - list->p) : list->n;
	list->p += word->n + (comma != NULL);
	list->n -= word->n + (comma != NULL);
	*word = span_trim(*word);
	return true;
}

size_t http_find_head(const char *p, size_t n)
{
	const char *at = n ? memmem(p, n, "\r\n\r\n", 4) : NULL;

	return at ? (size_t)(at - p) + 4 : 0;
}

/* ---- headers ---- */

/* State of reading a head. */
struct reading {
	struct http_head	*h;
	const char		*why;
	u32			hosts;
	u32			lengths;
	u32			codings;
	bool			close;
	bool			keep;
};

static int refuse(struct reading *r, int status, const char *why)
{
	r->why = why;
	return status;
}

static int read_length(struct reading *r, struct span v)
{
	u64 n = 0;
	size_t i;

	if (r->lengths++)
		return refuse(r, 400, "more than one Content-Length");
	if (!v.n || v.n > 18)
		return refuse(r, 400, "Content-Length is no length");
	for (i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '9')
			return refuse(r, 400, "Content-Length is no length");
		n = n * 10 + (u64)(v.p[i] - '0');
	}
	r->h->length = n;
	return 0;
}

static int read_coding(struct reading *r, struct span v)
{
	if (r->codings++)
		return refuse(r, 400, "more than one Transfer-Encoding");
	if (!span_is(v, "chunked"))
		return refuse(r, 501, "a Transfer-Encoding other than chunked");
	r->h->chunked = true;
	return 0;
}

static int read_connection(struct reading *r, struct span v)
{
	struct span word;

	while (list_next(&v, &word)) {
		r->close |= span_is(word, "close");
		r->keep |= span_is(word, "keep-alive");
	}
	return 0;
}

static int read_expect(struct reading *r, struct span v)
{
	if (!span_is(v, "100-continue"))
		return refuse(r, 417, "Expect other than 100-continue");
	r->h->expect = true;
	return 0;
}

/* The answer has the id in a header and in JSON: take only plain characters. */
static int read_id(struct reading *r, struct span v)
{
	size_t i;

	if (!v.n || v.n > HTTP_ID_MAX)
		return 0;
	for (i = 0; i < v.n; i++)
		if (!is_token(v.p[i]) && !strchr("/:=@", v.p[i]))
			return 0;
	memcpy(r->h->id, v.p, v.n);
	r->h->id[v.n] = '\0';
	return 0;
}

static int read_authorization(struct reading *r, struct span v)
{
	static const char scheme[] = "Bearer ";
	const size_t n = sizeof(scheme) - 1;

	if (v.n <= n || strncasecmp(v.p, scheme, n))
		return 0;
	v.p += n;
	v.n -= n;
	v = span_trim(v);
	r->h->bearer = v.p;
	r->h->bearer_len = v.n;
	return 0;
}

static int read_origin(struct reading *r, struct span v)
{
	r->h->origin = v.p;
	r->h->origin_len = v.n;
	return 0;
}

static int read_asked(struct reading *r, struct span v)
{
	r->h->asked = v.p;
	r->h->asked_len = v.n;
	return 0;
}

static int read_host(struct reading *r, struct span v)
{
	if (r->hosts++)
		return refuse(r, 400, "more than one Host");
	return 0;
}

static const struct {
	const char	*name;
	int		(*read)(struct reading *r, struct span v);
} known[] = {
	{ "Content-Length",	read_length },
	{ "Transfer-Encoding",	read_coding },
	{ "Connection",		read_connection },
	{ "Expect",		read_expect },
	{ "X-Request-Id",	read_id },
	{ "Authorization",	read_authorization },
	{ "Host",		read_host },
	{ "Origin",		read_origin },
	{ "Access-Control-Request-Headers", read_asked },
};

static int read_header(struct reading *r, struct span line)
{
	struct span name = { line.p, 0 }, value;
	size_t i;

	while (name.n < line.n && is_token(line.p[name.n]))
		name.n++;
	if (!name.n || name.n == line.n || line.p[name.n] != ':')
		return refuse(r, 400, "a malformed header line");
	value.p = line.p + name.n + 1;
	value.n = line.n - name.n - 1;
	for (i = 0; i < value.n; i++)
		if (((u8)value.p[i] < 0x20 && value.p[i] != '\t') ||
		    value.p[i] == 0x7f)
			return refuse(r, 400, "a control character in a header");
	value = span_trim(value);
	for (i = 0; i < ARRAY_SIZE(known); i++)
		if (span_is(name, known[i].name))
			return known[i].read(r, value);
	return 0;
}

/* ---- the request line ---- */

static int read_method(struct reading *r, struct span s)
{
	static const char * const names[HTTP_NR_METHODS] = {
#define x(name) #name,
		HTTP_METHODS(x)
#undef x
	};
	u32 i;

	for (i = 0; i < HTTP_NR_METHODS; i++) {
		if (s.n == strlen(names[i]) && !memcmp(s.p, names[i], s.n)) {
			r->h->method = (enum http_method)i;
			return 0;
		}
	}
	for (i = 0; i < s.n; i++)
		if (!is_token(s.p[i]))
			return refuse(r, 400, "a malformed request line");
	return refuse(r, s.n ? 501 : 400, "a method this server does not know");
}

/* "/path?query", or the same with a scheme and a host before it. */
static int read_target(struct reading *r, struct span s)
{
	static const char scheme[] = "http://";
	const char *p;
	size_t i;

	for (i = 0; i < s.n; i++)
		if ((u8)s.p[i] <= 0x20 || (u8)s.p[i] >= 0x7f)
			return refuse(r, 400, "the path holds bytes that belong into %-codes");
	if (s.n > sizeof(scheme) && !strncasecmp(s.p, scheme, sizeof(scheme) - 1)) {
		s.p += sizeof(scheme) - 1;
		s.n -= sizeof(scheme) - 1;
		p = memchr(s.p, '/', s.n);
		if (!p)
			return refuse(r, 400, "the address has no path");
		s.n -= (size_t)(p - s.p);
		s.p = p;
	}
	if (!s.n || (s.p[0] != '/' && !span_is(s, "*")))
		return refuse(r, 400, "the path does not begin with a slash");
	p = memchr(s.p, '?', s.n);
	r->h->path = s.p;
	r->h->path_len = p ? (size_t)(p - s.p) : s.n;
	r->h->query = p ? p + 1 : NULL;
	r->h->query_len = p ? s.n - r->h->path_len - 1 : 0;
	return 0;
}

static int read_version(struct reading *r, struct span s)
{
	if (s.n != 8 || memcmp(s.p, "HTTP/", 5) || s.p[6] != '.')
		return refuse(r, 400, "a malformed request line");
	if (s.p[5] != '1' || (s.p[7] != '0' && s.p[7] != '1'))
		return refuse(r, 505, "a version other than HTTP/1.0 and 1.1");
	r->h->http10 = s.p[7] == '0';
	return 0;
}

static int read_request_line(struct reading *r, struct span line)
{
	const char *end = line.p + line.n;
	struct span word[3] = { { line.p, 0 } };
	u32 i;
	int ret;

	for (i = 0; i < 3; i++) {
		const char *from = i ? word[i - 1].p + word[i - 1].n + 1 : line.p;
		const char *to = from < end ?
			memchr(from, ' ', (size_t)(end - from)) : NULL;

		if (from >= end || (to && i == 2))
			return refuse(r, 400, "a malformed request line");
		word[i].p = from;
		word[i].n = (size_t)((to ? to : end) - from);
		if (!to && i < 2)
			return refuse(r, 400, "a malformed request line");
	}
	ret = read_version(r, word[2]);
	if (!ret)
		ret = read_method(r, word[0]);
	return ret ? ret : read_target(r, word[1]);
}

/* Check headers that depend on each other. */
static int judge(struct reading *r)
{
	struct http_head *h = r->h;

	if (h->chunked && r->lengths)
		return refuse(r, 400, "both Content-Length and Transfer-Encoding");
	if (h->chunked && h->http10)
		return refuse(r, 400, "Transfer-Encoding in HTTP/1.0");
	if (!h->http10 && !r->hosts)
		return refuse(r, 400, "no Host header");
	h->keep_alive = !r->close && (!h->http10 || r->keep);
	if (h->http10)
		h->expect = false;
	return 0;
}

int http_parse_head(const char *p, size_t n, struct http_head *h,
		    const char **why)
{
	struct reading r = { .h = h };
	const char *end = p + n, *eol;
	u32 lines = 0;
	int ret = 0;

	memset(h, 0, sizeof(*h));
	while (!ret && p < end) {
		struct span line = { p, 0 };

		eol = memchr(p, '\n', (size_t)(end - p));
		if (!eol || eol == p || eol[-1] != '\r') {
			ret = refuse(&r, 400, "a line that does not end with CR LF");
			break;
		}
		line.n = (size_t)(eol - p) - 1;
		p = eol + 1;
		if (!line.n)
			break;		/* the end of the head */
		if (lines > HTTP_HEADERS_MAX)
			ret = refuse(&r, 431, "too many headers");
		else if (lines++)
			ret = read_header(&r, line);
		else
			ret = read_request_line(&r, line);
	}
	if (!ret && !lines)
		ret = refuse(&r, 400, "a malformed request line");
	if (!ret)
		ret = judge(&r);
	if (ret)
		*why = r.why;
	return ret;
}

/* ---- chunks ---- */

enum {
	CHUNK_SIZE,	/* digits of a size */
	CHUNK_EXT,	/* extensions after them on the line */
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	CHUNK_TRAILER,	/* start of a line after the last chunk */
	CHUNK_TRAILER_LINE,
	CHUNK_TRAILER_LF,
	CHUNK_END_LF,
	CHUNK_END,
};

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int chunk_size_byte(struct http_chunks *c, char b)
{
	const int digit = hex_digit(b);

	if (digit >= 0 && c->line < 15) {
		c->left = c->left * 16 + (u64)digit;
		c->line++;
		return 0;
	}
	if (!c->line || digit >= 0)
		return -400;
	if (b == '\r')
		c->state = CHUNK_SIZE_LF;
	else if (b == ';' || is_blank(b))
		c->state = CHUNK_EXT;
	else
		return -400;
	return 0;
}

/* The size line is over. */
static int chunk_begin(struct http_chunks *c, u64 max)
{
	c->line = 0;
	if (!c->left) {
		c->state = CHUNK_TRAILER;
		return 0;
	}
	if (c->left > max - c->total)
		return -413;
	c->total += c->left;
	c->state = CHUNK_DATA;
	return 0;
}

static int expect_byte(struct http_chunks *c, char b, char want, u32 next)
{
	if (b != want)
		return -400;
	c->state = next;
	return 0;
}

/* Take a byte of the framing. */
static int chunk_byte(struct http_chunks *c, char b, u64 max)
{
	int ret;

	switch (c->state) {
	case CHUNK_SIZE:
		return chunk_size_byte(c, b);
	case CHUNK_EXT:
		if (b == '\n' || ++c->line > CHUNK_LINE_MAX)
			return -400;
		if (b == '\r')
			c->state = CHUNK_SIZE_LF;
		return 0;
	case CHUNK_SIZE_LF:
		ret = expect_byte(c, b, '\n', CHUNK_DATA);
		return ret ? ret : chunk_begin(c, max);
	case CHUNK_DATA_CR:
		return expect_byte(c, b, '\r', CHUNK_DATA_LF);
	case CHUNK_DATA_LF:
		return expect_byte(c, b, '\n', CHUNK_SIZE);
	case CHUNK_TRAILER:
		c->state = b == '\r' ? CHUNK_END_LF : CHUNK_TRAILER_LINE;
		return b == '\n' ? -400 : 0;
	case CHUNK_TRAILER_LINE:
		if (b == '\n' || ++c->line > CHUNK_TRAILERS)
			return -400;
		if (b == '\r')
			c->state = CHUNK_TRAILER_LF;
		return 0;
	case CHUNK_TRAILER_LF:
		return expect_byte(c, b, '\n', CHUNK_TRAILER);
	default:
		return expect_byte(c, b, '\n', CHUNK_END);
	}
}

int http_chunks_push(struct http_chunks *c, const char *p, size_t n,
		     size_t *used, struct text *out, u64 max)
{
	size_t i = 0;
	int ret = 0;

	while (!ret && i < n && c->state != CHUNK_END) {
		size_t piece;

		if (c->state != CHUNK_DATA) {
			ret = chunk_byte(c, p[i++], max);
			continue;
		}
		piece = n - i;
		if (piece > c->left)
			piece = (size_t)c->left;
		text_add(out, p + i, piece);
		i += piece;
		c->left -= piece;
		if (!c->left)
			c->state = CHUNK_DATA_CR;
	}
	*used = i;
	return ret ? ret : c->state == CHUNK_END;
}

/* ---- answers ---- */

const char *http_status_text(int status)
{
	switch (status) {
#define x(code, text) case code: return text;
	HTTP_STATUSES(x)
#undef x
	}
	return "Unknown";
}

void http_write_head(struct text *t, const struct http_answer *a)
{
	const bool content = a->status != 204;

	text_printf(t, "HTTP/1.1 %d %s\r\n", a->status,
		    http_status_text(a->status));
	if (content)
		text_printf(t, "Content-Type: %s\r\n", a->type);
	if (content && a->length >= 0)
		text_printf(t, "Content-Length: %lld\r\n",
			    (long long)a->length);
	else if (content && !a->http10)
		text_puts(t, "Transfer-Encoding: chunked\r\n");
	if (a->id && *a->id)
		text_printf(t, "X-Request-Id: %s\r\n", a->id);
	if (a->headers)
		text_puts(t, a->headers);
	if (a->close)
		text_puts(t, "Connection: close\r\n");
	else if (a->http10)
		text_puts(t, "Connection: keep-alive\r\n");
	text_puts(t, "\r\n");
}
