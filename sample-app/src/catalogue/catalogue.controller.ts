import { Body, Controller, Get, HttpCode, Inject, Post } from '@nestjs/common';
import { ApiBadRequestResponse, ApiOkResponse, ApiOperation, ApiResponse, ApiTags } from '@nestjs/swagger';
import { ErrorBody } from '../http/error-body.js';
import { CatalogueEntryDto, ImportDto } from './catalogue.dto.js';
import { CatalogueService } from './catalogue.service.js';

@ApiTags('catalogue')
@ApiResponse({ status: 423, type: ErrorBody, description: 'The catalogue stayed locked while the shop waited' })
@Controller('catalogue')
export class CatalogueController {
  constructor(@Inject(CatalogueService) private readonly catalogue: CatalogueService) {}

  @Post()
  @HttpCode(200)
  @ApiOperation({ summary: 'Imports prices; readers see all of them or none' })
  @ApiBadRequestResponse({ type: ErrorBody, description: 'The import breaks a rule, which the message names' })
  import(@Body() given: ImportDto): Promise<{ imported: number }> {
    return this.catalogue.import(given);
  }

  @Get()
  @ApiOperation({ summary: 'Shows all prices, beside other readers and never beside an import' })
  @ApiOkResponse({ type: [CatalogueEntryDto] })
  read(): Promise<CatalogueEntryDto[]> {
    return this.catalogue.read();
  }
}
