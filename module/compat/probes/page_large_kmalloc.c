// SPDX-License-Identifier: GPL-2.0
/* Since 6.14 pages of large kmalloc() calls have a type of their own. */
#include <linux/mm.h>

bool probe(struct page *page);
bool probe(struct page *page)
{
	return PageLargeKmalloc(page);
}
