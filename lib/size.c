// SPDX-License-Identifier: Apache-2.0
/*
 * size.c - numbers and sizes as people write them
 *
 * K, M, G and T, also with i or iB after them, are powers of 1024.  KB, MB, GB and TB
 * are powers of 1000, as vendors of disks and memory use them.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#include <kvmm/opts.h>

#define FRACTION_MOST	6	/* digits; with 40 bits of the unit they fit u64 */

/* Read decimal digits and move *@s behind them.  Return: as kv_parse_uint(). */
static int digits_read(const char **s, u64 *value)
{
	const char *p = *s;
	bool over = false;
	u64 v = 0;

	for (; *p >= '0' && *p <= '9'; p++)
		over |= __builtin_mul_overflow(v, 10, &v) ||
			__builtin_add_overflow(v, (u64)(*p - '0'), &v);
	if (p == *s)
		return -EINVAL;
	*s = p;
	*value = v;
	return over ? -ERANGE : 0;
}

int kv_parse_uint(const char *s, u64 *value)
{
	u64 v = 0;
	int err = digits_read(&s, &v);

	if (err == -EINVAL || *s)
		return -EINVAL;
	*value = v;
	return err;
}

/* Read ".5": *@part of *@whole, 5 of 10; without a point 0 of 1. */
static int fraction_read(const char **s, u64 *part, u64 *whole)
{
	const char *from = *s + 1;

	*part = 0;
	*whole = 1;
	if (**s != '.')
		return 0;
	*s = from;
	if (digits_read(s, part) || *s - from > FRACTION_MOST)
		return -EINVAL;
	for (; from < *s; from++)
		*whole *= 10;
	return 0;
}

/* Bytes of the unit @s, which may be empty. */
static int unit_read(const char *s, u64 *unit)
{
	static const char letters[] = "KMGT";
	const char *letter;
	u64 base = 1024;
	long n;

	*unit = 1;
	if (!*s || !strcasecmp(s, "B"))
		return 0;
	letter = strchr(letters, toupper((unsigned char)*s));
	if (!letter)
		return -EINVAL;
	s++;
	if (!strcasecmp(s, "B"))
		base = 1000;
	else if (*s && strcasecmp(s, "i") && strcasecmp(s, "iB"))
		return -EINVAL;
	for (n = letter - letters + 1; n; n--)
		*unit *= base;
	return 0;
}

int kv_parse_size(const char *s, u64 *bytes)
{
	u64 v = 0, part, whole, unit;
	int over = digits_read(&s, &v);

	if (over == -EINVAL || fraction_read(&s, &part, &whole))
		return -EINVAL;
	if (*s == ' ' && s[1])
		s++;
	/* Half a byte is a mistake; a part of a larger unit is rounded down. */
	if (unit_read(s, &unit) || (unit == 1 && part))
		return -EINVAL;
	if (over || __builtin_mul_overflow(v, unit, &v) ||
	    __builtin_add_overflow(v, part * unit / whole, &v))
		return -ERANGE;
	*bytes = v;
	return 0;
}

int kv_parse_amount(const char *s, struct kv_amount *amount)
{
	size_t len = strlen(s);
	char digits[24];
	int err;

	if (!strcmp(s, "auto")) {
		*amount = (struct kv_amount){ .unit = KV_AMOUNT_AUTO };
		return 0;
	}
	if (!len || s[len - 1] != '%') {
		amount->unit = KV_AMOUNT_BYTES;
		return kv_parse_size(s, &amount->value);
	}
	if (len >= sizeof(digits))
		return -ERANGE;
	memcpy(digits, s, len);
	digits[len - 1] = '\0';
	amount->unit = KV_AMOUNT_PERCENT;
	err = kv_parse_uint(digits, &amount->value);
	if (err)
		return err;
	return amount->value < 1 || amount->value > 100 ? -ERANGE : 0;
}

char *kv_format_size(u64 bytes, char *buf, size_t len)
{
	static const char units[] = "KMGT";
	int u = -1;

	while (bytes && !(bytes & 1023) && u < 3) {
		bytes >>= 10;
		u++;
	}
	if (u < 0)
		snprintf(buf, len, "%" PRIu64, bytes);
	else
		snprintf(buf, len, "%" PRIu64 "%c", bytes, units[u]);
	return buf;
}

char *kv_format_near(u64 bytes, u64 unit, char *buf, size_t len)
{
	const u64 below = bytes / unit * unit;
	char lo[32], hi[32];

	kv_format_size(below, lo, sizeof(lo));
	kv_format_size(below + unit, hi, sizeof(hi));
	snprintf(buf, len, "%s%s%s", below ? lo : "", below ? " or " : "", hi);
	return buf;
}
